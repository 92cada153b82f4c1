//go:build cgo && linux

package rest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestDNSRebinding checks that requests with a foreign host name are rejected. For a browser, a
// page whose name was made to point to this address has the same origin. Its GET then has neither
// an Origin header nor, without TLS, a Sec-Fetch-Site header.
func TestDNSRebinding(t *testing.T) {
	v := serve(t, setup{hosts: []string{"models.example"}})
	for host, want := range map[string]int{
		"": 200, "127.0.0.1": 200, "[::1]:80": 200, "localhost": 200, "LocalHost.:1": 200, "models.example": 200, "Models.Example.:80": 200,
		"rebound.example": 403, "rebound.example:8000": 403, "localhost.rebound.example": 403, "127.0.0.1.rebound.example": 403,
	} {
		for _, method := range []string{"GET", "HEAD"} {
			for _, path := range []string{"/v2", "/v2/health/ready", "/v2/models/stats", "/v2/systemsharedmemory/status"} {
				r := testenv.Must(http.NewRequest(method, "http://"+v.address+path, nil))(t)
				r.Host = host
				answer := testenv.Must(v.client.Do(r))(t)
				body := testenv.Must(io.ReadAll(answer.Body))(t)
				answer.Body.Close()
				require.Equal(t, want, answer.StatusCode, "%s %s of %s", method, path, host)
				if want == 403 && method == "GET" {
					require.Contains(t, string(body), "-hosts")
				}
			}
		}
	}
	c, err := net.Dial("tcp", v.address) // not a browser
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, testenv.ErrorOf(io.WriteString(c, "GET /v2/health/ready HTTP/1.0\r\n\r\n")))
	answer := testenv.Must(http.ReadResponse(bufio.NewReader(c), nil))(t)
	answer.Body.Close()
	require.Equal(t, 200, answer.StatusCode, "without a Host")
}

// TestWebPages checks that pages of other origins, and of names that point to this address, have no
// effect, although browsers let any page post to any address.
func TestWebPages(t *testing.T) {
	v := serve(t, setup{hosts: []string{"models.example"}})
	for _, c := range []struct {
		method, host, origin, site string
		status                     int
	}{
		{"POST", "", "", "", 200},
		{"POST", "any.example", "", "", 200},
		{"POST", "", "https://elsewhere.example", "cross-site", 403},
		{"POST", "", "https://elsewhere.example", "", 403},
		{"POST", "", "null", "", 403},
		{"POST", "", "", "cross-site", 403},
		{"POST", "rebound.example", "http://rebound.example", "same-origin", 403},
		{"POST", "rebound.example", "http://rebound.example", "", 403},
		{"POST", "models.example:80", "http://models.example:80", "same-origin", 200},
		{"POST", "Models.Example", "http://Models.Example", "", 200},
		{"POST", "models.example.", "http://models.example.", "", 200},
		{"POST", "localhost:1", "http://localhost:1", "", 200},
		{"POST", "[::1]:1", "http://[::1]:1", "same-origin", 200},
		{"POST", "127.0.0.1", "http://127.0.0.1", "same-origin", 200},
		{"DELETE", "", "https://elsewhere.example", "", 403},
		{"GET", "", "https://elsewhere.example", "cross-site", 405},
	} {
		r := testenv.Must(http.NewRequest(c.method, "http://"+v.address+"/v2/repository/index", nil))(t)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		answer := testenv.Must(v.client.Do(r))(t)
		answer.Body.Close()
		require.Equal(t, c.status, answer.StatusCode, "%+v", c)
	}
}
