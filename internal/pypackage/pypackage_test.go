package pypackage

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLinksOfTheReadme checks that the description in the metadata has no relative links. The page of a package
// on a registry shows the text without the repository.
func TestLinksOfTheReadme(t *testing.T) {
	page := Metadata("1.2.3")[0]
	require.Equal(t, "METADATA", page.Name)
	links := regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(page.Data, -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		require.True(t, strings.HasPrefix(link[1], "https://"), link[1])
	}
}
