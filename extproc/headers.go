package extproc

import (
	"strconv"
	"strings"
)

// headerView reads the headers of one message. Names are lower case on the
// wire.
type headerView struct{ list []header }

// Get returns the first value of the header, "" when it is absent.
func (v headerView) Get(name string) string {
	for i := range v.list {
		if v.list[i].name == name {
			return v.list[i].value
		}
	}
	return ""
}

// path returns :path without the query.
func (v headerView) path() string {
	p, _, _ := strings.Cut(v.Get(headerPath), "?")
	return p
}

// status returns :status, 0 when it is absent or not a number.
func (v headerView) status() int {
	n, err := strconv.Atoi(v.Get(headerStatus))
	if err != nil || n < 0 || n > 999 {
		return 0
	}
	return n
}

// contentLength returns the declared length, -1 when there is none.
func (v headerView) contentLength() int64 {
	s := v.Get(headerContentLength)
	if s == "" {
		return -1
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
