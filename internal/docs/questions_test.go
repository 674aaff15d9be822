package docs

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

const (
	questions    = "docs/questions.md"
	mostLinks    = 3   // from the README to an answer
	mostWords    = 480 // two minutes
	halfMinute   = 120 // words
	manyQuestion = 20
)

// part is the text of a page from a heading, or from its beginning, to the next heading.
type part struct {
	anchor string
	words  int
	links  []string // pages
}

// partsOf splits a page at its headings. The first part begins with the page.
func partsOf(page, text string) []part {
	list := []part{{}}
	inFence := false // code is not read as text
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inFence = !inFence
		}
		if m := heading.FindString(line); m != "" && !inFence && !strings.HasPrefix(line, "# ") {
			for a := range anchors(line) {
				list = append(list, part{anchor: a})
			}
		}
		last := &list[len(list)-1]
		if !inFence {
			last.words += len(word.FindAllString(line, -1))
		}
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			if file, _, _ := strings.Cut(m[1], "#"); strings.HasSuffix(file, ".md") && !strings.Contains(file, "://") {
				last.links = append(last.links, path.Join(path.Dir(page), file))
			}
		}
	}
	return list
}

// way is the shortest way from the README to a page: the number of links, and the words of the parts
// with these links.
type way struct{ links, words int }

// ways follows links from the README, without the list of questions.
func ways(t *testing.T) map[string]way {
	found, todo := map[string]way{"README.md": {}}, []string{"README.md"}
	for len(todo) > 0 {
		page := todo[0]
		todo = todo[1:]
		here := found[page]
		if here.links == mostLinks {
			continue
		}
		for _, p := range partsOf(page, read(t, root+"/"+page)) {
			for _, next := range p.links {
				w := way{here.links + 1, here.words + p.words}
				old, known := found[next]
				if next == questions || known && (old.links < w.links || old.links == w.links && old.words <= w.words) {
					continue
				}
				found[next] = w
				todo = append(todo, next)
			}
		}
	}
	return found
}

var word = regexp.MustCompile(`[^\s|]*[\pL\pN][^\s|]*`)

var question = regexp.MustCompile(`(?m)^\| ([^|]+\?) \| \[([^\]]+)\]\(([^)]+)\) \|.*\|$`)

// TestQuestions checks that the answer to each question of docs/questions.md is at most three links
// and two minutes of reading from the README, and that the page has the real figures.
func TestQuestions(t *testing.T) {
	text := read(t, root+"/"+questions)
	from := ways(t)
	n := 0
	want := question.ReplaceAllStringFunc(text, func(line string) string {
		m := question.FindStringSubmatch(line)
		n++
		file, anchor, _ := strings.Cut(m[3], "#")
		page := path.Join("docs", file)
		w, found := from[page]
		if !found {
			t.Errorf("%q: no more than %d links lead from the README to %s", m[1], mostLinks, page)
			return line
		}
		words := -1
		for _, p := range partsOf(page, read(t, root+"/"+page)) {
			if p.anchor == anchor {
				words = w.words + p.words
			} else if anchor == "" && words >= 0 {
				words += p.words // the whole page is the answer
			}
		}
		switch {
		case words < 0:
			t.Errorf("%q: %s has no heading %q", m[1], page, anchor)
		case words > mostWords:
			t.Errorf("%q: %d words lead to %s, want %d at most", m[1], words, m[3], mostWords)
		}
		halves := (words + halfMinute - 1) / halfMinute // rounded up, so that few edits change the page
		return fmt.Sprintf("| %s | [%s](%s) | %d | %d:%02d |", m[1], m[2], m[3], w.links, halves/2, halves%2*30)
	})
	if n < manyQuestion {
		t.Errorf("%s has %d questions, want %d or more", questions, n, manyQuestion)
	}
	if text == want {
		return
	}
	if !*rewrite {
		t.Errorf("%s differs: run go test ./internal/docs -run TestQuestions -rewrite", questions)
		return
	}
	if err := os.WriteFile(root+"/"+questions, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
