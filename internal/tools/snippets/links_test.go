package snippets

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

var (
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	// named matches a file or a directory of the repository that a page names.
	named = regexp.MustCompile("[`(]((?:dlpack|examples|internal|interop|memmgr|syclobj|usmarray)/[a-z0-9_./-]*[a-z0-9_])[`)]")
)

// anchors returns the anchors that GitHub and MkDocs make of the headings of a page.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all[strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}

// badLinks returns the links of a page to files and headings that do not exist.
func badLinks(path, text string) (bad []string) {
	for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		file, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(file, "://") {
			continue
		}
		target := text
		if file != "" {
			file = filepath.Join(filepath.Dir(path), file)
			data, err := os.ReadFile(file)
			if info, statErr := os.Stat(file); err != nil && (statErr != nil || !info.IsDir()) {
				bad = append(bad, m[1])
				continue
			}
			target = string(data)
		}
		if anchor != "" && !anchors(target)[anchor] {
			bad = append(bad, m[1])
		}
	}
	return bad
}

func TestLinks(t *testing.T) {
	pages := listed(t, "*.md")
	require.Contains(t, pages, "README.md")
	for _, page := range pages {
		path := filepath.Join(testenv.Root(), page)
		text, err := os.ReadFile(path)
		if err == nil { // a deleted file is still in the index
			require.Empty(t, badLinks(path, string(text)), page)
		}
		if slices.Contains([]string{"CONTRIBUTING.md", "README.md", "docs/architecture.md"}, page) {
			names := named.FindAllStringSubmatch(string(text), -1)
			require.NotEmpty(t, names)
			for _, m := range names {
				_, err := os.Stat(filepath.Join(testenv.Root(), m[1]))
				require.NoError(t, err, "%s names it", page)
			}
		}
	}
}

func TestLinksFindsFaults(t *testing.T) {
	page := filepath.Join(testenv.Root(), "docs", "page.md")
	text := "# A `b` heading\n[1](#a-b-heading) [2](memory.md) [3](https://x.y/#z) [4](../docs)\n```\n[5](no.md)\n```\n"
	require.Empty(t, badLinks(page, text))
	require.Equal(t, []string{"#missing", "no.md", "memory.md#missing"}, badLinks(page, text+"[](#missing) [](no.md) [](memory.md#missing)"))
}
