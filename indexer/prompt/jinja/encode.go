package jinja

import (
	"strings"
	"unicode/utf8"
)

// jsonStyle is how json.dumps lays a document out.
type jsonStyle struct {
	item, key string // separators
	indent    string // per level; "" = one line unless lines is set
	lines     bool
	sortKeys  bool
	ascii     bool
}

var compactPython = jsonStyle{item: ", ", key: ": "}

// AppendJSON appends v as Python's json.dumps(v, ensure_ascii=False) writes
// it. It returns an error for values that have no JSON.
func AppendJSON(dst []byte, v Value) (out []byte, err error) {
	defer catch(&err)
	return compactPython.append(dst, v, 0), nil
}

func filterToJSON(_ *state, in Value, a args) Value {
	a.most("tojson", 4, "ensure_ascii", "indent", "separators", "sort_keys")
	s := compactPython
	s.ascii = a.get(0, "ensure_ascii", BoolValue(false)).IsTrue()
	if ind := a.get(1, "indent", NoneValue()); ind.kind != None {
		s.lines, s.item = true, ","
		s.indent = ind.s
		if ind.kind == Int {
			s.indent = repeat(" ", ind.n)
		}
	}
	if sep := a.get(2, "separators", NoneValue()); len(sep.Items()) == 2 {
		s.item, s.key = str(sep.Items()[0]), str(sep.Items()[1])
	}
	s.sortKeys = a.get(3, "sort_keys", BoolValue(false)).IsTrue()
	return StringValue(string(s.append(nil, in, 0)))
}

func (s *jsonStyle) append(dst []byte, v Value, depth int) []byte {
	if depth > maxDepth {
		failWith(ErrBounds, "value nested too deep")
	}
	switch v.kind {
	case None:
		return append(dst, "null"...)
	case Bool:
		if v.n != 0 {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case Float:
		return append(dst, strings.NewReplacer("inf", "Infinity", "nan", "NaN").Replace(string(appendFloat(nil, v.float())))...)
	case Int, Big:
		return appendRepr(dst, v)
	case String:
		return appendJSONString(dst, v.s, s.ascii)
	case List, Tuple:
		items := v.Items()
		if len(items) == 0 {
			return append(dst, "[]"...)
		}
		dst = append(dst, '[')
		for i, it := range items {
			dst = s.append(s.between(dst, i, depth+1), it, depth+1)
		}
		return append(s.line(dst, depth), ']')
	case DictKind:
		return s.appendDict(dst, v.Dict(), depth)
	}
	fail("object of type %s is not JSON serializable", v.kind)
	return dst
}

func (s *jsonStyle) appendDict(dst []byte, d *Dict, depth int) []byte {
	if d.Len() == 0 {
		return append(dst, "{}"...)
	}
	entries := d.entries
	if s.sortKeys {
		sorted := filterDictSort(nil, DictValue(d), args{pos: []Value{BoolValue(true)}})
		d = NewDict(d.Len())
		for _, pair := range sorted.Items() {
			d.setValue(pair.Items()[0], pair.Items()[1])
		}
		entries = d.entries
	}
	dst = append(dst, '{')
	for i := range entries {
		dst = s.between(dst, i, depth+1)
		if k := entries[i].keyValue(); k.kind == String {
			dst = appendJSONString(dst, k.s, s.ascii)
		} else {
			dst = append(s.append(append(dst, '"'), k, depth+1), '"')
		}
		dst = s.append(append(dst, s.key...), entries[i].val, depth+1)
	}
	return append(s.line(dst, depth), '}')
}

func (s *jsonStyle) between(dst []byte, i, depth int) []byte {
	if i > 0 {
		dst = append(dst, s.item...)
	}
	return s.line(dst, depth)
}

func (s *jsonStyle) line(dst []byte, depth int) []byte {
	if !s.lines {
		return dst
	}
	dst = append(dst, '\n')
	for range depth {
		dst = append(dst, s.indent...)
	}
	return dst
}

// appendJSONString appends a JSON string with the escapes that Python writes.
func appendJSONString(dst []byte, s string, ascii bool) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && (c < utf8.RuneSelf || !ascii) {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		n := 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		default:
			var r rune
			r, n = utf8.DecodeRuneInString(s[i:])
			dst = appendUnicodeEscape(dst, r)
		}
		i += n
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

func appendUnicodeEscape(dst []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		dst = appendHex(append(dst, `\u`...), uint64(0xd800+r>>10), 4)
		return appendHex(append(dst, `\u`...), uint64(0xdc00+r&0x3ff), 4)
	}
	return appendHex(append(dst, `\u`...), uint64(r), 4)
}

// AppendJSONIndent is AppendJSON over several lines, as json.dumps writes with
// an indent.
func AppendJSONIndent(dst []byte, v Value, indent string) (out []byte, err error) {
	defer catch(&err)
	s := jsonStyle{item: ",", key: ": ", lines: true, indent: indent}
	return s.append(dst, v, 0), nil
}
