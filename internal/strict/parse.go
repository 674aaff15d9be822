package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of a document.
const (
	maxBytes = 8 << 20
	maxDepth = 64
	maxNodes = 200_000 // after resolving aliases
)

// Parse parses one YAML or JSON document. file is its name in problems. The root is always valid;
// after a syntax error it is empty and requires no fields.
func Parse(file string, data []byte) (Node, *Report) {
	r := &Report{File: file}
	none := Node{report: r}
	if len(data) > maxBytes {
		r.add(0, 0, fmt.Sprintf("%d bytes, more than %d", len(data), maxBytes), "")
		return none, r
	}
	dec := yaml.NewDecoder(bytes.NewReader(untab(data)))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		r.add(1, 1, "the file is empty", "")
		return none, r
	case err != nil:
		r.syntax(err, data)
		return none, r
	}
	if len(doc.Content) != 1 || doc.Content[0].Tag == "!!null" {
		r.add(1, 1, "the file is empty", "")
		return none, r
	}
	root := doc.Content[0]
	c := checker{report: r}
	c.walk(root, 0)
	if c.refused {
		return none, r
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		r.add(second.Line, second.Column, "a second document", "one file holds one document")
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err, data)
	}
	return Node{report: r, at: root}, r
}

// untab makes tab-indented JSON readable as YAML. JSON strings contain no raw tabs, so values and
// columns are unchanged.
func untab(data []byte) []byte {
	if t := bytes.TrimLeft(data, " \t\r\n"); len(t) == 0 || (t[0] != '{' && t[0] != '[') {
		return data
	}
	return bytes.ReplaceAll(data, []byte("\t"), []byte(" "))
}

// checker limits the tree and finds duplicate keys.
type checker struct {
	report  *Report
	nodes   int
	refused bool
}

func (c *checker) walk(n *yaml.Node, depth int) {
	if c.refused {
		return
	}
	c.nodes++
	if depth > maxDepth || c.nodes > maxNodes {
		c.refused = true
		c.report.add(n.Line, n.Column, "nested too deeply or too large", "")
		return
	}
	if n.Kind == yaml.AliasNode {
		c.walk(n.Alias, depth+1)
		return
	}
	if n.Kind == yaml.MappingNode {
		c.doubles(n)
	}
	for _, child := range n.Content {
		c.walk(child, depth+1)
	}
}

func (c *checker) doubles(n *yaml.Node) {
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if line, twice := lines[key.Value]; twice {
			c.report.add(key.Line, key.Column, fmt.Sprintf("field %s is given twice", quote(key.Value)), fmt.Sprintf("first on line %d", line))
			continue
		}
		lines[key.Value] = key.Line
	}
}

// quote returns a word of the file in quotes, truncated if it is long.
func quote(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
