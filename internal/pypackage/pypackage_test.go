package pypackage

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLinksOfTheReadme checks that the description in the wheel's metadata has no relative links. The page of a package
// on a registry shows the text without the repository.
func TestLinksOfTheReadme(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	links := regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		require.True(t, strings.HasPrefix(link[1], "https://"), link[1])
	}
}
