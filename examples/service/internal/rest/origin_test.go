//go:build cgo && linux

package rest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Browsers let any page post anywhere: pages of others, and of names that point here, do nothing.
func TestWebPages(t *testing.T) {
	v := serve(t, setup{rest: Options{Hosts: []string{"models.example"}}})
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
		r, err := http.NewRequest(c.method, "http://"+v.address+"/v2/repository/index", nil)
		require.NoError(t, err)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		answer, err := v.client.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, c.status, answer.StatusCode, "%+v", c)
	}
}

func TestTenants(t *testing.T) {
	v := serve(t, setup{rest: Options{Tenant: "x-tenant"}})
	names := func() (all []string) {
		for _, s := range v.engine.Stats().Tenants {
			all = append(all, s.Name)
		}
		return all
	}
	require.Equal(t, 200, v.inference("identity", binaryFloats(1), floats(1)).status)
	require.Equal(t, []string{"127.0.0.1"}, names())
	require.Equal(t, 200, v.inference("identity", binaryFloats(1), floats(1), "X-Tenant", "somebody").status)
	require.ElementsMatch(t, []string{"127.0.0.1", "somebody"}, names())
	v.inference("identity", binaryFloats(1), floats(1), "X-Tenant", strings.Repeat("x", 200)).message(t, 400)
}
