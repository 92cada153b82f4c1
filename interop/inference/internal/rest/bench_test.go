//go:build cgo && linux

package rest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/memmgr"
)

// BenchmarkInfer measures the cost of the transport. The model copies its input, and each client
// repeatedly writes one request and reads one response on its connection.
func BenchmarkInfer(b *testing.B) {
	memmgr.RecordStacks(0) // stacks are recorded for the tests only
	defer memmgr.RecordStacks(16)
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			v := serve(b, setup{engine: engine.Options{Limit: 1 << 30}})
			text := binaryFloats(size / 4)
			request := fmt.Appendf(nil, "POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n%s", len(text)+size, headerLength, len(text), text)
			request = append(request, make([]byte, size)...)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				c, err := net.Dial("tcp", v.address)
				require.NoError(b, err)
				defer c.Close()
				in := bufio.NewReader(c)
				for pb.Next() {
					if _, err := c.Write(request); err != nil {
						b.Error(err)
						return
					}
					if err := skipResponse(in); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// skipResponse reads a response at a lower cost than net/http.
func skipResponse(in *bufio.Reader) error {
	length := 0
	for n := 0; ; n++ {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if n == 0 && !bytes.Contains(line, []byte(" 200 ")) {
			return fmt.Errorf("%s", line)
		}
		if len(line) == 2 {
			_, err := io.CopyN(io.Discard, in, int64(length))
			return err
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
}
