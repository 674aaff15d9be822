package value

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds how deep values nest that are written or compared. Documents
// nest less deep.
const maxDepth = maxJSONDepth + 100

// Style is how json.dumps lays a document out.
type Style struct {
	Item, Key string // separators
	Indent    string // of one level, where Lines is set
	Lines     bool   // one line per member, not one for all
	SortKeys  bool
	ASCII     bool // other characters are escaped
}

// PythonStyle is the style of json.dumps without arguments but ensure_ascii=False.
func PythonStyle() Style { return Style{Item: ", ", Key: ": "} }

// Indented is the style of json.dumps with an indent.
func Indented(indent string) Style {
	return Style{Item: ",", Key: ": ", Lines: true, Indent: indent}
}

// Append appends v in this style. It returns an error for values that have no
// JSON.
func (s Style) Append(dst []byte, v Value) (out []byte, err error) {
	defer Catch(&err)
	return s.append(dst, v, 0), nil
}

func (s *Style) append(dst []byte, v Value, depth int) []byte {
	if depth > maxDepth {
		RaiseAs(ErrBounds, "value nested too deep")
	}
	CheckSize(len(dst))
	switch v.Kind() {
	case KindNone:
		return append(dst, "null"...)
	case KindBool:
		if v.IsTrue() {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case KindFloat:
		return append(dst, strings.NewReplacer("inf", "Infinity", "nan", "NaN").Replace(v.Text())...)
	case KindInt, KindBig:
		return v.Append(dst)
	case KindString:
		return appendString(dst, v.Str(), s.ASCII)
	case KindList, KindTuple:
		items := v.Items()
		if len(items) == 0 {
			return append(dst, "[]"...)
		}
		dst = append(dst, '[')
		for i, it := range items {
			dst = s.append(s.between(dst, i, depth+1), it, depth+1)
		}
		return append(s.line(dst, depth), ']')
	case KindDict:
		return s.appendDict(dst, v.Dict(), depth)
	}
	Raise("object of type %s is not JSON serializable", v.Kind())
	return dst
}

func (s *Style) appendDict(dst []byte, d *Dict, depth int) []byte {
	if d.Len() == 0 {
		return append(dst, "{}"...)
	}
	if s.SortKeys {
		d = sorted(d)
	}
	dst = append(dst, '{')
	for i := range d.Len() {
		dst = s.between(dst, i, depth+1)
		k, v := d.At(i)
		if k.Kind() == KindString {
			dst = appendString(dst, k.Str(), s.ASCII)
		} else {
			dst = append(s.append(append(dst, '"'), k, depth+1), '"')
		}
		dst = s.append(append(dst, s.Key...), v, depth+1)
	}
	return append(s.line(dst, depth), '}')
}

// sorted returns a dict with the keys in their order.
func sorted(d *Dict) *Dict {
	keys := d.Keys()
	slices.SortStableFunc(keys, (&Meter{Left: math.MaxInt}).Order)
	out := NewDict(len(keys))
	for _, k := range keys {
		v, _ := d.Lookup(k)
		out.Store(k, v)
	}
	return out
}

func (s *Style) between(dst []byte, i, depth int) []byte {
	if i > 0 {
		dst = append(dst, s.Item...)
	}
	return s.line(dst, depth)
}

func (s *Style) line(dst []byte, depth int) []byte {
	if !s.Lines {
		return dst
	}
	dst = append(dst, '\n')
	CheckSize(len(dst) + depth*len(s.Indent))
	for range depth {
		dst = append(dst, s.Indent...)
	}
	return dst
}

// appendString appends a JSON string with the escapes that Python writes.
func appendString(dst []byte, s string, ascii bool) []byte {
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
		dst = AppendHex(append(dst, `\u`...), uint64(0xd800+r>>10), 4)
		return AppendHex(append(dst, `\u`...), uint64(0xdc00+r&0x3ff), 4)
	}
	return AppendHex(append(dst, `\u`...), uint64(r), 4)
}
