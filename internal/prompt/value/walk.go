package value

// Members calls f for each member of the document, which must be an object, with the key and the
// raw value. Raw values are only checked for balanced brackets. It builds no values and is meant
// for large documents. An error from f ends the walk and is returned.
func Members(doc []byte, f func(key string, val []byte) error) error {
	return walk(doc, '{', '}', func(d *Decoder) error {
		if d.peek() != '"' {
			d.bad("a key")
		}
		start := d.pos
		d.skipString()
		key, err := Text(d.s[start:d.pos])
		if err != nil {
			return err
		}
		if d.space(); d.peek() != ':' {
			d.bad(`":"`)
		}
		d.pos++
		return f(key, d.written())
	})
}

// Elements calls f for each element of the document, an array, as written. See
// [Members].
func Elements(doc []byte, f func(val []byte) error) error {
	return walk(doc, '[', ']', func(d *Decoder) error { return f(d.written()) })
}

func walk(doc []byte, opening, closing byte, each func(d *Decoder) error) (err error) {
	defer Catch(&err)
	var d Decoder
	d.reset(doc)
	if d.space(); d.peek() != opening {
		d.bad(string(opening))
	}
	d.pos++
	for d.space(); d.peek() != closing; d.space() {
		if err := each(&d); err != nil {
			return err
		}
		if !d.more(closing) {
			break
		}
	}
	d.pos++
	d.end()
	return nil
}

// written skips a value and returns its source text.
func (d *Decoder) written() []byte {
	d.space()
	start := d.pos
	if d.skip(); d.pos == start {
		d.bad("a value")
	}
	return d.s[start:d.pos]
}

// Text returns the text of a document that is a string. Without escapes it
// aliases the document.
func Text(doc []byte) (s string, err error) {
	defer Catch(&err)
	var d Decoder
	d.reset(doc)
	if d.peek() != '"' {
		d.bad("a string")
	}
	s = d.str()
	d.end()
	return s, nil
}

// Split separates the members named in large from the document, which must be an object. It returns
// a document of the other members, and the raw values of the named ones. The last of duplicates
// wins, and a null member is omitted.
func Split(doc []byte, large ...string) (rest []byte, parts map[string][]byte, err error) {
	rest, parts = []byte{'{'}, map[string][]byte{}
	err = Members(doc, func(key string, val []byte) error {
		for _, name := range large {
			if name == key {
				parts[key] = val
				return nil
			}
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(appendString(rest, key, false), ':'), val...)
		return nil
	})
	for key, val := range parts {
		if string(val) == "null" {
			delete(parts, key)
		}
	}
	return append(rest, '}'), parts, err
}
