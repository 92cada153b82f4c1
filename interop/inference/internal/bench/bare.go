package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// startBare starts this program as a server that reads a request and responds immediately. The
// effect of a flood there is due to the machine and to net/http.
func startBare() (*server, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, "", err
	}
	s, err := start("a bare handler", "listening", nil, self, "-bare", ports[0])
	return s, ports[0], err
}

// serveBare serves requests of aiohttp's form, with the answers that the load expects.
func serveBare(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	server := http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := make([]byte, max(r.ContentLength, 0))
		if _, err := io.ReadFull(r.Body, p); err != nil {
			return
		}
		width, err := strconv.Atoi(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
		if err != nil || width < 2 || len(p) < 8 || len(p)%(4*width) != 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer := edges(p, width)
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	})}
	return server.Serve(l)
}
