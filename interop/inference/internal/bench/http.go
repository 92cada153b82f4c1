package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// httpClient speaks HTTP/1.1 over one connection, with requests that are made once.
type httpClient struct {
	s       *spec
	number  int
	request []byte // all of it
	input   []byte // its part with the tensor
	conn    net.Conn
	in      *bufio.Reader
	body    []byte
	regions []*shared // of the input and the output
}

func dialHTTP(s *spec, number int) (client, error) {
	c := &httpClient{s: s, number: number, body: make([]byte, s.output()+64<<10)}
	c.input = make([]byte, s.input())
	s.fill(c.input, number)
	if s.Region {
		if err := c.register(); err != nil {
			return nil, err
		}
	}
	c.prepare()
	return c, nil
}

// prepare makes the bytes of the request.
func (c *httpClient) prepare() {
	s := c.s
	if s.Protocol == "bare" {
		head := fmt.Sprintf("POST /sobel/%d/%d HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", s.Height, s.Width, s.Address, len(c.input))
		c.request = append([]byte(head), c.input...)
		return
	}
	in, out := "x", "y"
	if s.Model == "sobel" {
		in, out = "luminance", "edges"
	}
	shape := strconv.Itoa(s.Height)
	if s.Width > 0 {
		shape += "," + strconv.Itoa(s.Width)
	}
	given, wanted, tensor := fmt.Sprintf(`"binary_data_size":%d`, len(c.input)), `"binary_data":true`, c.input
	if s.Region {
		region := `"shared_memory_region":"%s","shared_memory_byte_size":%d`
		given, wanted, tensor = fmt.Sprintf(region, c.regions[0].name, s.input()), fmt.Sprintf(region, c.regions[1].name, s.output()), nil
	}
	header := fmt.Sprintf(`{"inputs":[{"name":"%s","datatype":"FP32","shape":[%s],"parameters":{%s}}],"outputs":[{"name":"%s","parameters":{%s}}]}`,
		in, shape, given, out, wanted)
	head := fmt.Sprintf("POST /v2/models/%s/infer HTTP/1.1\r\nHost: %s\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s",
		s.Model, s.Address, len(header), len(header)+len(tensor), header)
	c.request = append([]byte(head), tensor...)
}

// sharedPrefix begins the keys of the clients' shared memory, which the service admits.
const sharedPrefix = "usmbridge-bench-"

// register creates memory for input and output and registers it with the server.
func (c *httpClient) register() error {
	for _, part := range []struct {
		name string
		size int
	}{{"in", c.s.input()}, {"out", c.s.output()}} {
		m, err := newShared(fmt.Sprintf(sharedPrefix+"%d-%d-%s", os.Getpid(), c.number, part.name), part.size)
		if err != nil {
			return err
		}
		c.regions = append(c.regions, m)
		body := fmt.Sprintf(`{"key":"/%s","offset":0,"byte_size":%d}`, m.name, part.size)
		if err := c.post("/v2/systemsharedmemory/region/"+m.name+"/register", body); err != nil {
			return err
		}
	}
	copy(c.regions[0].data, c.input)
	return nil
}

// post makes a small request and wants no more than that it succeeds.
func (c *httpClient) post(path, body string) error {
	c.request = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", path, c.s.Address, len(body), body)
	_, err := c.exchange()
	return err
}

func (c *httpClient) open() error {
	if c.conn != nil {
		return nil
	}
	conn, err := c.s.connect()
	if err != nil {
		return err
	}
	c.conn = conn
	if c.in == nil {
		c.in = bufio.NewReaderSize(conn, 64<<10)
	} else {
		c.in.Reset(conn)
	}
	return nil
}

func (c *httpClient) drop() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// exchange sends the request and returns the body of the answer, valid until the next.
func (c *httpClient) exchange() ([]byte, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	_ = c.conn.SetDeadline(time.Now().Add(time.Minute))
	sent := make(chan error, 1)
	if len(c.request) > 128<<10 {
		// The server may refuse the request before it has read all of it.
		conn := c.conn
		go func() { _, err := conn.Write(c.request); sent <- err }()
	} else {
		_, err := c.conn.Write(c.request)
		sent <- err
	}
	status, body, closes, err := c.answer()
	if err != nil || closes {
		c.drop()
	}
	if writeErr := <-sent; writeErr != nil {
		c.drop()
	}
	if err != nil {
		return nil, err
	}
	switch {
	case status == 200:
		return body, nil
	case status == 503 || status == 504:
		return nil, fmt.Errorf("%w: %s", errRefused, body)
	}
	return nil, &refusedError{fmt.Sprintf("%d: %s", status, body)}
}

var errAnswer = errors.New("the answer is no HTTP with a length")

// answer reads one response.
func (c *httpClient) answer() (status int, body []byte, closes bool, err error) {
	length := -1
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, nil, true, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first {
			if len(line) < 12 {
				return 0, nil, true, errAnswer
			}
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, nil, true, errAnswer
			}
			continue
		}
		if len(line) == 0 {
			break
		}
		if name, value, ok := strings.Cut(string(line), ":"); ok {
			switch strings.ToLower(name) {
			case "content-length":
				if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
					return 0, nil, true, errAnswer
				}
			case "connection":
				closes = strings.EqualFold(strings.TrimSpace(value), "close")
			}
		}
	}
	if length < 0 || length > len(c.body) {
		return 0, nil, true, errAnswer
	}
	_, err = io.ReadFull(c.in, c.body[:length])
	return status, c.body[:length], closes, err
}

func (c *httpClient) once(verify bool) error {
	body, err := c.exchange()
	if err != nil {
		return err
	}
	tensor := body
	switch {
	case c.s.Region:
		tensor = c.regions[1].data
	case c.s.Protocol == "v2":
		if len(body) < c.s.output() {
			return errWrong
		}
		tensor = body[len(body)-c.s.output():]
	}
	if len(tensor) != c.s.output() || verify && !c.s.right(tensor, c.input, c.number) {
		return errWrong
	}
	return nil
}

// cut sends part of a request, or all and does not wait, and closes the connection.
func (c *httpClient) cut() error {
	if err := c.open(); err != nil {
		return err
	}
	defer c.drop()
	_ = c.conn.SetDeadline(time.Now().Add(10 * time.Second))
	part := len(c.request)
	if time.Now().UnixNano()&64 != 0 {
		part = part/2 + 1
	}
	_, err := c.conn.Write(c.request[:part])
	return err
}

func (c *httpClient) close() {
	for _, m := range c.regions {
		_ = c.post("/v2/systemsharedmemory/region/"+m.name+"/unregister", "{}")
		m.remove()
	}
	c.drop()
}
