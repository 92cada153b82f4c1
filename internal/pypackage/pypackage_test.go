package pypackage

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLinksOfTheReadme checks that the description in the metadata has no relative links.
func TestLinksOfTheReadme(t *testing.T) {
	require.Equal(t,
		"![a picture](https://github.com/usmbridge/usmbridge/raw/main/doc/a.jpg) [text](https://github.com/usmbridge/usmbridge/blob/main/LICENSE), "+
			"[there](https://example.org/x), [here](#limits)",
		absoluteLinks("![a picture](doc/a.jpg) [text](LICENSE), [there](https://example.org/x), [here](#limits)"))

	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "](LICENSE)", "the readme has such links")
	page := Metadata("1.2.3", string(readme))[0]
	require.Equal(t, "METADATA", page.Name)
	for _, link := range regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(page.Data, -1) {
		require.True(t, strings.HasPrefix(link[1], "https://") || strings.HasPrefix(link[1], "#"), link[1])
	}
}
