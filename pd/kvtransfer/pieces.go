package kvtransfer

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Pieces is a text in consecutive pieces.
type Pieces [][]byte

// Len returns the length in bytes.
func (p Pieces) Len() (n int) {
	for _, part := range p {
		n += len(part)
	}
	return n
}

// Join returns the text in one piece.
func (p Pieces) Join() []byte { return slices.Concat(p...) }

var comma, closing = []byte{','}, []byte{'}'}

// Pieces returns the result of With without copying: unchanged parts point into the object's text.
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

// cut collects the pieces of an object's text. Consecutive kept parts form one piece: [from, to),
// which is not in out yet.
type cut struct {
	text     []byte
	out      Pieces
	from, to int
	members  int
}

// keep adds a field's text.
func (c *cut) keep(start, end int) {
	switch {
	case c.members == 0 && c.to == start, c.from < c.to && c.members > 0 && c.to+1 == start: // adjacent except for the comma
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

// add adds new text.
func (c *cut) add(part []byte) {
	if c.from < c.to {
		c.out = append(c.out, c.text[c.from:c.to])
		c.from = c.to
	}
	if len(part) > 0 {
		c.out = append(c.out, part)
	}
}
