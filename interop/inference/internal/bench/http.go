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
	"syscall"
	"time"
)

// httpClient speaks HTTP/1.1 over one connection, with requests that are made once.
type httpClient struct {
	s       *spec
	number  int
	request []byte
	input   []byte
	conn    net.Conn // nil: to be opened
	in      *bufio.Reader
	body    []byte
	regions []region // of the input and the output
}

func dialHTTP(s *spec, number int) (client, error) {
	c := &httpClient{s: s, number: number, input: s.data(number), body: make([]byte, s.output()+64<<10)}
	if s.protocol == "bare" {
		c.request = append(fmt.Appendf(nil, "POST /sobel/%d/%d HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", s.height, s.width, s.address, len(c.input)), c.input...)
		return c, nil
	}
	given, wanted, tensor := fmt.Sprintf(`"binary_data_size":%d`, len(c.input)), `"binary_data":true`, c.input
	if s.region {
		if err := c.register(); err != nil {
			return nil, err
		}
		const parameters = `"shared_memory_region":"%s","shared_memory_byte_size":%d`
		given, wanted, tensor = fmt.Sprintf(parameters, c.regions[0].name, s.input()), fmt.Sprintf(parameters, c.regions[1].name, s.output()), nil
	}
	in, out := s.names()
	shape := strconv.Itoa(s.height)
	if s.width > 0 {
		shape += "," + strconv.Itoa(s.width)
	}
	header := fmt.Sprintf(`{"inputs":[{"name":"%s","datatype":"FP32","shape":[%s],"parameters":{%s}}],"outputs":[{"name":"%s","parameters":{%s}}]}`,
		in, shape, given, out, wanted)
	c.request = append(fmt.Appendf(nil, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: %s\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s",
		s.model, s.address, len(header), len(header)+len(tensor), header), tensor...)
	return c, nil
}

// sharedPrefix begins the keys of the clients' shared memory, which the service admits.
const sharedPrefix = "usmbridge-bench-"

// region is shared memory under a name in /dev/shm.
type region struct {
	name string
	data []byte
}

// register creates memory for input and output and registers it with the server.
func (c *httpClient) register() error {
	for i, size := range []int{c.s.input(), c.s.output()} {
		name := fmt.Sprintf("%s%d-%d-%d", sharedPrefix, os.Getpid(), c.number, i)
		f, err := os.OpenFile("/dev/shm/"+name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Truncate(int64(size)); err != nil {
			return err
		}
		data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			return err
		}
		c.regions = append(c.regions, region{name, data})
		if err := c.post(name+"/register", fmt.Sprintf(`{"key":"/%s","offset":0,"byte_size":%d}`, name, size)); err != nil {
			return err
		}
	}
	copy(c.regions[0].data, c.input)
	return nil
}

// post makes a small request that concerns a region.
func (c *httpClient) post(path, body string) error {
	c.request = fmt.Appendf(nil, "POST /v2/systemsharedmemory/region/%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", path, c.s.address, len(body), body)
	_, err := c.exchange()
	return err
}

// exchange sends the request and returns the body of the response, valid until the next.
func (c *httpClient) exchange() (body []byte, err error) {
	if c.conn == nil {
		if c.conn, err = net.DialTimeout("tcp", c.s.address, 10*time.Second); err != nil {
			return nil, err
		}
		c.in = bufio.NewReaderSize(c.conn, 64<<10)
	}
	defer func() {
		if err != nil {
			c.conn.Close()
			c.conn = nil
		}
	}()
	_ = c.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.conn.Write(c.request); err != nil {
		return nil, err
	}
	status, length := "", -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			break
		}
		if status == "" {
			status = string(line)
		} else if name, value, _ := bytes.Cut(line, []byte(": ")); bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return nil, err
			}
		}
	}
	if length < 0 || length > len(c.body) {
		return nil, errors.New("the response has no valid Content-Length")
	}
	if _, err := io.ReadFull(c.in, c.body[:length]); err != nil {
		return nil, err
	}
	if status != "HTTP/1.1 200 OK" {
		return nil, fmt.Errorf("%s: %s", status, c.body[:length])
	}
	return c.body[:length], nil
}

func (c *httpClient) once(verify bool) error {
	body, err := c.exchange()
	switch {
	case err != nil:
		return err
	case c.s.region:
		body = c.regions[1].data
	case c.s.protocol == "v2":
		body = body[max(0, len(body)-c.s.output()):]
	}
	return c.s.check(body, c.input, c.number, verify)
}

func (c *httpClient) close() {
	for _, r := range c.regions {
		_ = c.post(r.name+"/unregister", "{}")
		_ = os.Remove("/dev/shm/" + r.name)
		_ = syscall.Munmap(r.data)
	}
	if c.conn != nil {
		c.conn.Close()
	}
}
