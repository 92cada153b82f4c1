package admin

import (
	_ "embed"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// look.js measures what a person would see: texts with too little contrast, what reaches
// beyond the screen, what has no name for those who listen.
//
//go:embed testdata/look.js
var lookScript string

// The page in a real browser, on a desk and on a phone, in light and in dark: it draws what
// the service does, goes on drawing, fits, can be read, and loads nothing that its policy
// forbids. With USMBRIDGE_PICTURES=dir pictures are left there.
func TestPageInBrowser(t *testing.T) {
	b := startBrowser(t)
	s := newService(t)
	stop := s.load(t)
	defer stop()
	for _, c := range []struct {
		name   string
		size   size
		scheme string
	}{
		{"desk-light", size{1280, 900, false}, "light"},
		{"desk-dark", size{1280, 900, false}, "dark"},
		{"phone-light", size{360, 740, true}, "light"},
		{"phone-dark", size{360, 740, true}, "dark"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := b.open(s.url+"/", c.size, c.scheme)
			p.wait(`Number(document.documentElement.dataset.shown) >= 3`)
			p.wait(`document.querySelectorAll("#segments svg rect").length > 0`)
			p.wait(`document.querySelector("#state").textContent === "ready"`)
			p.wait(`/^[1-9]/.test(document.querySelector("#rate").textContent)`)
			p.wait(`document.querySelector("#models tbody th").textContent === "identity"`)
			p.wait(`[...document.querySelectorAll("#refused tbody th")].some(e => e.textContent === "internal")`)
			p.wait(`document.querySelector("#calls-about").textContent.includes("16.0 MiB")`)
			p.wait(`[...document.querySelectorAll("#holders tbody th")].some(e => e.textContent === "identity")`)
			var found []string
			require.NoError(t, p.eval(lookScript, &found))
			require.Empty(t, found)
			if dir := os.Getenv("USMBRIDGE_PICTURES"); dir != "" {
				p.picture(filepath.Join(dir, c.name+".png"))
			}
			p.must("Page.close", nil)
		})
	}
	require.Empty(t, b.complaints())

	// Names that clients choose are text.
	p := b.open(s.url+"/", size{1280, 900, false}, "light")
	p.wait(`Number(document.documentElement.dataset.shown) >= 1`)
	var injected bool
	require.NoError(t, p.eval(`rows("tenants", [["<img src=x onerror=alert(1)>", "", ""]], ""); document.querySelector("#tenants img") !== null`, &injected))
	require.False(t, injected)

	// When the service goes the page says so.
	s.close()
	p.wait(`document.querySelector("#link").textContent.includes("no connection")`)
}
