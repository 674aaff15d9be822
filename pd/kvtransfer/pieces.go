package kvtransfer

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Pieces are a text in pieces, one behind the other.
type Pieces [][]byte

// Len returns how many bytes the text has.
func (p Pieces) Len() (n int) {
	for _, part := range p {
		n += len(part)
	}
	return n
}

// Join returns the text in one piece.
func (p Pieces) Join() []byte { return slices.Concat(p...) }

var comma, closing = []byte{','}, []byte{'}'}

// Pieces returns what With returns, uncopied: what does not change is part of the object's
// own text.
func (o *Object) Pieces(edits ...Edit) Pieces {
	c := cut{text: o.text, out: make(Pieces, 0, 4*len(edits)+4), to: bytes.IndexByte(o.text, '{') + 1}
	done := make([]bool, len(edits))
	for i := range o.members {
		m := &o.members[i]
		e := -1
		for k := range edits {
			if edits[k].Key == m.key {
				e = k
			}
		}
		switch {
		case e < 0:
			c.keep(m.start, m.end)
		case edits[e].Value != nil && !done[e]:
			done[e] = true
			c.keep(m.start, m.value)
			c.add(edits[e].Value)
		}
	}
	for k := range edits {
		if edits[k].Value != nil && !done[k] {
			key, _ := json.Marshal(edits[k].Key) // a string always encodes
			if c.members > 0 {
				c.add(comma)
			}
			c.add(append(key, ':'))
			c.add(edits[k].Value)
			c.members++
		}
	}
	c.add(closing)
	return c.out
}

// cut collects the pieces of an object's text. What of it is kept in a row stays one piece:
// [from, to), which is not in out yet.
type cut struct {
	text     []byte
	out      Pieces
	from, to int
	members  int
}

// keep goes on with a member's text.
func (c *cut) keep(start, end int) {
	switch {
	case c.members == 0 && c.to == start, c.from < c.to && c.members > 0 && c.to+1 == start: // but for the comma
	case c.members == 0:
		c.add(nil)
		c.from = start
	default:
		c.add(comma)
		c.from = start
	}
	c.to = end
	c.members++
}

// add goes on with text of another origin.
func (c *cut) add(part []byte) {
	if c.from < c.to {
		c.out = append(c.out, c.text[c.from:c.to])
		c.from = c.to
	}
	if len(part) > 0 {
		c.out = append(c.out, part)
	}
}
