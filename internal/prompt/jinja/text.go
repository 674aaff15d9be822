package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

func replace(s, old, repl string, n int) string {
	if len(repl) > len(old) {
		value.CheckSize(len(s) + strings.Count(s, old)*len(repl))
	}
	return strings.Replace(s, old, repl, n)
}

// upper and lower implement str.upper and str.lower, including characters that expand to several
// and the final sigma.
func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func isASCII(s string) bool { return value.RuneCount(s) == len(s) }

func capitalize(s string) string {
	if s == "" {
		return s
	}
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToTitle(r)) + lower(s[n:])
}

// titleFilter is Jinja's title: words start after white space, hyphens and
// opening brackets.
func titleFilter(s string) string {
	var b strings.Builder
	start := true
	for _, r := range s {
		switch {
		case start:
			b.WriteRune(unicode.ToUpper(r))
		default:
			b.WriteRune(unicode.ToLower(r))
		}
		start = value.IsSpace(r) || strings.ContainsRune("-({[<", r)
	}
	return b.String()
}

// pyTitle is str.title: letters after anything that is no letter are upper.
func pyTitle(s string) string {
	prev := false
	return strings.Map(func(r rune) rune {
		was := prev
		prev = unicode.IsLetter(r)
		if was {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

// strip removes white space, or the characters of chars, from the ends.
func strip(s string, chars value.Value, left, right bool) string {
	cut := value.IsSpace
	switch chars.Kind() {
	case value.KindNone:
	case value.KindString:
		set := map[rune]bool{}
		for _, r := range chars.Str() {
			set[r] = true
		}
		cut = func(r rune) bool { return set[r] }
	default:
		value.Raise("strip argument is a %s", chars.Kind())
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

// splitWhite splits at runs of white space, n times at most if n is not
// negative.
func splitWhite(s string, n int, fromRight bool) []string {
	if n < 0 {
		return strings.FieldsFunc(s, value.IsSpace)
	}
	var out []string
	for {
		if fromRight {
			s = strings.TrimRightFunc(s, value.IsSpace)
		} else {
			s = strings.TrimLeftFunc(s, value.IsSpace)
		}
		if s == "" {
			break
		}
		cut := -1
		if len(out) < n && fromRight {
			cut = strings.LastIndexFunc(s, value.IsSpace)
		} else if len(out) < n {
			cut = strings.IndexFunc(s, value.IsSpace)
		}
		switch {
		case cut < 0:
			out = append(out, s)
			s = ""
		case fromRight:
			rest := s[cut:]
			out = append(out, strings.TrimLeftFunc(rest, value.IsSpace))
			s = s[:cut]
		default:
			out = append(out, s[:cut])
			s = s[cut:]
		}
	}
	if fromRight {
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
	}
	return out
}

// splitLines is str.splitlines.
func splitLines(s string, keep bool) []string {
	var out []string
	for s != "" {
		i := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if i < 0 {
			return append(out, s)
		}
		end := i + 1
		switch {
		case strings.HasPrefix(s[i:], "\r\n"), strings.HasPrefix(s[i:], "\u0085"):
			end = i + 2
		case s[i] == 0xe2:
			end = i + 3
		}
		if keep {
			i = end
		}
		out = append(out, s[:i])
		s = s[end:]
	}
	return out
}
