//go:build page

package page

import (
	"flag"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const repository = "../../.."

var all = flag.Bool("all", false, "open all pages of the site")

// opened lists the pages to open without -all: of each kind of page, one with wide tables, code and pictures.
var opened = []string{"", "get-started/laptop/", "tasks/monitor/", "runbook/", "concepts/decision/", "configuration/", "metrics/", "clustering/", "pd/", "plugins/predicted-ttft-scorer/", "design/routing/", "adr/"}

// TestSite builds the documentation site with `make docs`, and opens pages of each kind in a browser. They load
// without errors, use no other host, and fit the width of a phone. The navigation has every page of the site,
// and the search finds pages by words.
func TestSite(t *testing.T) {
	build := exec.Command("make", "docs")
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make docs: %v\n%s", err, out)
	}
	folder := filepath.Join(repository, "build/site")
	var pages []string
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "index.html" {
			page, err := filepath.Rel(folder, filepath.Dir(path))
			if err != nil {
				return err
			}
			pages = append(pages, strings.TrimPrefix(page+"/", "./"))
		}
		return err
	})
	if err != nil || len(pages) < 100 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	server := httptest.NewServer(http.FileServerFS(os.DirFS(folder)))
	t.Cleanup(server.Close)
	s := &stand{}
	s.startBrowser(t)

	// The navigation of each page has all pages.
	if *all {
		opened = pages
	}
	linked := map[string]bool{}
	for _, page := range opened {
		if !slices.Contains(pages, page) {
			t.Errorf("the site has no page %q", page)
			continue
		}
		s.do(t, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(server.URL+"/"+page))
		for _, address := range strings.Fields(s.eval(t, `[...document.querySelectorAll("nav.md-nav--primary a[href]")].map(e => e.href.split("#")[0]).join(" ")`)) {
			linked[strings.TrimPrefix(address, server.URL+"/")] = true
		}
		if got := s.eval(t, elsewhere); got != "" {
			t.Errorf("%s loads from other hosts: %s", page, got)
		}
		if got := s.eval(t, broken); got != "" {
			t.Errorf("%s: pictures are not shown: %s", page, got)
		}
		s.do(t, chromedp.EmulateViewport(390, 844))
		if got := s.eval(t, wide); got != "" {
			t.Errorf("%s is wider than a phone: %s", page, got)
		}
	}
	for _, page := range pages {
		if !linked[page] {
			t.Errorf("the navigation does not have %s", page)
		}
	}
	t.Logf("%d of %d pages opened", len(opened), len(pages))

	for word, page := range searched {
		s.do(t, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(server.URL+"/"))
		testkit.Await(t, "the search is ready", func() bool {
			return s.eval(t, `document.querySelector(".md-search__input") !== null && document.readyState === "complete"`) == "true"
		})
		s.do(t, chromedp.Focus(".md-search__input"), chromedp.KeyEvent(word))
		var found string
		testkit.Await(t, "the search for "+word+" has results", func() bool {
			found = s.eval(t, `[...document.querySelectorAll(".md-search-result__link")].map(e => e.pathname).join(" ")`)
			return found != ""
		})
		if !slices.Contains(strings.Fields(found), "/"+page) {
			t.Errorf("the search for %q finds %s, want %s among them", word, found, page)
		}
	}
}

// searched maps search words to a page that must be among the results.
var searched = map[string]string{
	"gossip": "clustering/", "tokenizer": "models/", "upgrade": "tasks/upgrade/", "dashboards": "tasks/monitor/",
	"GV3001": "runbook/", "LoRA": "tasks/add-a-model/", "expression": "tasks/expressions/", "lease": "pd-failures/",
}

const (
	// broken lists pictures that did not load.
	broken = `[...document.images].filter(e => e.complete && e.naturalWidth === 0).map(e => e.src).join(" ")`
	// elsewhere lists resources from other hosts.
	elsewhere = `performance.getEntriesByType("resource").map(e => e.name).filter(e => new URL(e).origin !== location.origin && !e.startsWith("blob:") && !e.startsWith("data:")).join(" ")`
	// wide names elements that make the document wider than the window.
	wide = `document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollWidth <= 390 ? "" :
		document.documentElement.scrollWidth + " pixels: " + [...document.querySelectorAll("article *")].filter(e => e.getBoundingClientRect().right > 391).slice(0, 3).map(e => e.tagName + " " + e.textContent.slice(0, 40)).join("; ")`
)
