package request

import "strings"

// SessionSource is a request header or a cookie that holds the session key.
type SessionSource struct {
	Header string // lower case
	Cookie string
}

// name returns the header to read.
func (s SessionSource) name() string {
	if s.Header == "" {
		return "cookie"
	}
	return s.Header
}

// UseSession sets the session key from the first source that has one. Otherwise it leaves the key
// unchanged.
func (r *Request) UseSession(sources []SessionSource) {
	if r.Headers == nil {
		return
	}
	for _, s := range sources {
		v := r.Headers.Get(s.name())
		if s.Header == "" {
			v = cookie(v, s.Cookie)
		}
		if v != "" && len(v) <= maxHeaderValueLength {
			r.Session = v
			return
		}
	}
}

// cookie returns the value of one cookie of a Cookie header.
func cookie(header, name string) string {
	for header != "" {
		var pair string
		pair, header, _ = strings.Cut(header, ";")
		if k, v, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && k == name {
			return strings.Trim(v, `"`)
		}
	}
	return ""
}
