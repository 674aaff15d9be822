package extproc

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
)

// headerView provides access to the headers of one message. Names are lower case on the wire.
type headerView struct{ list []wire.Header }

// Get returns the first value of a header, "" if absent.
func (v headerView) Get(name string) string {
	for i := range v.list {
		if v.list[i].Name == name {
			return v.list[i].Value
		}
	}
	return ""
}

// path returns :path without the query.
func (v headerView) path() string {
	p, _, _ := strings.Cut(v.Get(wire.HeaderPath), "?")
	return p
}

// query returns the query of :path.
func (v headerView) query() string {
	_, q, _ := strings.Cut(v.Get(wire.HeaderPath), "?")
	return q
}

// status returns :status, 0 when it is absent or not a number.
func (v headerView) status() int {
	n, err := strconv.Atoi(v.Get(wire.HeaderStatus))
	if err != nil || n < 0 || n > 999 {
		return 0
	}
	return n
}

// readTypes are prefixes of content types whose bodies are searched for a prompt: JSON, and types
// that clients use for JSON by default. Other types may be endless streams or uploads.
var readTypes = [...]string{"application/json", "text/json", "text/plain", "application/x-www-form-urlencoded"}

// upgrades reports whether a request asks for an upgrade although it has its own body. An engine
// that ignores the upgrade would read that body uninspected.
func (v headerView) upgrades() bool {
	method := v.Get(wire.HeaderMethod)
	return v.Get(wire.HeaderUpgrade) != "" && method != "" && method != "GET" && method != "CONNECT"
}

// bodyUnread reports whether the request is placed without its body: a WebSocket or tunnel, whose
// body has no end, or a content type that is not read.
func (v headerView) bodyUnread() bool {
	if v.Get(wire.HeaderUpgrade) != "" || v.Get(wire.HeaderMethod) == "CONNECT" {
		return true
	}
	value := v.Get(wire.HeaderContentType)
	if strings.IndexByte(value, ',') >= 0 { // several headers: the engine decides which one counts
		return false
	}
	t, _, _ := strings.Cut(value, ";")
	if t = strings.TrimSpace(t); t == "" || len(t) > 5 && strings.EqualFold(t[len(t)-5:], "+json") {
		return false
	}
	for _, read := range readTypes {
		if strings.EqualFold(t, read) {
			return false
		}
	}
	return true
}

// form reports whether the body is a multipart form.
func (v headerView) form() bool {
	t, _, _ := strings.Cut(v.Get(wire.HeaderContentType), ";")
	return v.Get(wire.HeaderUpgrade) == "" && strings.EqualFold(strings.TrimSpace(t), "multipart/form-data")
}

// local reports whether Envoy generated the response because an upstream was unreachable or broke
// off: plain text without an upstream service time.
func (v headerView) local() bool {
	return v.status() >= 500 && v.Get(wire.HeaderUpstreamTime) == "" && strings.HasPrefix(v.Get(wire.HeaderContentType), "text/plain")
}

// attempts returns the number of tries reported by Envoy, or 0.
func (v headerView) attempts() int {
	n, err := strconv.Atoi(v.Get(wire.HeaderAttempts))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// retryAfter returns the engine's Retry-After, or 0. A date counts from the response's own Date,
// because clocks differ, or otherwise from now.
func (v headerView) retryAfter(now time.Time) time.Duration {
	says := v.Get(wire.HeaderRetryAfter)
	if n, err := strconv.ParseUint(says, 10, 16); err == nil {
		return time.Duration(n) * time.Second
	}
	until, err := http.ParseTime(says)
	if err != nil {
		return 0
	}
	if own, err := http.ParseTime(v.Get(wire.HeaderDate)); err == nil {
		now = own
	}
	return max(until.Sub(now), 0)
}

// contentLength returns the declared length, or -1.
func (v headerView) contentLength() int64 {
	s := v.Get(wire.HeaderContentLength)
	if s == "" {
		return -1
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
