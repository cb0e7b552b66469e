package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// library are the packages that users import.
var library = []string{"txnsession", "producer", "netclient", "heartbeat"}

// pages returns the Markdown files of the repository by their path from its
// root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[strings.TrimPrefix(filepath.ToSlash(path), "../")] = string(text)
		}
		return nil
	})
	require.NoError(t, err)
	require.Contains(t, all, "README.md")
	return all
}

// exportedErrors returns what of a package a program may branch on: error
// variables, predicates over an error, and error types.
func exportedErrors(t *testing.T, pkg string) []string {
	t.Helper()
	names := make(map[string]bool)
	files, err := filepath.Glob("../" + pkg + "/*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range f.Decls {
			errorNames(decl, names)
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func errorNames(decl ast.Decl, names map[string]bool) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		predicate := d.Recv == nil && (strings.HasPrefix(d.Name.Name, "Is") || d.Name.Name == "NeverSent")
		if predicate && d.Name.IsExported() {
			names[d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if strings.HasPrefix(n.Name, "Err") {
						names[n.Name] = true
					}
				}
			case *ast.TypeSpec:
				if s.Name.IsExported() && strings.HasSuffix(s.Name.Name, "Error") {
					names[s.Name.Name] = true
				}
			}
		}
	}
}

func TestEveryErrorIsDocumented(t *testing.T) {
	page := pages(t)["docs/errors.md"]
	found := 0
	for _, pkg := range library {
		for _, name := range exportedErrors(t, pkg) {
			found++
			require.Contains(t, page, "`"+name+"`", "%s.%s is not on docs/errors.md", pkg, name)
		}
	}
	require.Greater(t, found, 15, "the search finds the errors")
}

// TestNoErrorIsMadeUp looks for what the page has and the code has not.
func TestNoErrorIsMadeUp(t *testing.T) {
	known := make(map[string]bool)
	for _, pkg := range library {
		for _, name := range exportedErrors(t, pkg) {
			known[name] = true
		}
	}
	for _, name := range []string{"ErrAborting", "ErrMaxBuffered"} { // kgo's
		known[name] = true
	}
	for _, m := range regexp.MustCompile("`(?:txnsession|producer|heartbeat|netclient|kgo)?\\.?((?:Err[A-Z]|Is[A-Z])\\w*|\\w+Error)`").
		FindAllStringSubmatch(pages(t)["docs/errors.md"], -1) {
		require.True(t, known[m[1]], "docs/errors.md has %s, and no package has", m[1])
	}
}

var (
	link    = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the fragments by which a page's headings are linked.
func anchors(page string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		slug := notSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for name, page := range all {
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, fragment, _ := strings.Cut(m[1], "#")
			target := name
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), path))
				_, err := os.Stat("../" + target)
				require.NoError(t, err, "%s links to %s", name, m[1])
			}
			if fragment != "" {
				require.True(t, anchors(all[target])[fragment], "%s links to %s, and there is no such heading", name, m[1])
			}
		}
	}
}

// TestGuidesCodeIsCompiled compares the guide's code with the file that has it.
func TestGuidesCodeIsCompiled(t *testing.T) {
	source, err := os.ReadFile("guide_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(pages(t)["docs/guide.md"], -1)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		require.Contains(t, string(source), b[1], "docs/guide.md has code that is not in guide_test.go")
	}
}

// TestIndexHasEveryPage keeps docs/README.md complete.
func TestIndexHasEveryPage(t *testing.T) {
	all := pages(t)
	for name := range all {
		if filepath.Dir(name) == "docs" && name != "docs/README.md" {
			require.Contains(t, all["docs/README.md"], "("+filepath.Base(name)+")")
		}
	}
}
