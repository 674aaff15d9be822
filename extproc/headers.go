package extproc

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
)

// headerView reads the headers of one message. Names are lower case on the
// wire.
type headerView struct{ list []wire.Header }

// Get returns the first value of the header, "" when it is absent.
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

// readTypes are the beginnings of content types in which a prompt is looked for:
// JSON, and what clients send it as that say nothing of it. Everything else may
// be a call that streams for ever, or an upload.
var readTypes = [...]string{"application/json", "text/json", "text/plain", "application/x-www-form-urlencoded"}

// upgrades reports whether an upgrade is asked for by a request that has a body of its
// own: an engine that does not know the upgrade would read that body, which nobody saw.
func (v headerView) upgrades() bool {
	method := v.Get(wire.HeaderMethod)
	return v.Get(wire.HeaderUpgrade) != "" && method != "" && method != "GET" && method != "CONNECT"
}

// bodyUnread tells whether the request is placed without its body: a WebSocket
// or tunnel, whose body has no end, or one of a type that is not looked at.
func (v headerView) bodyUnread() bool {
	if v.Get(wire.HeaderUpgrade) != "" || v.Get(wire.HeaderMethod) == "CONNECT" {
		return true
	}
	value := v.Get(wire.HeaderContentType)
	if strings.IndexByte(value, ',') >= 0 { // several headers: which of them counts is the engine's choice
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

// form reports whether the body is one of fields and files.
func (v headerView) form() bool {
	t, _, _ := strings.Cut(v.Get(wire.HeaderContentType), ";")
	return v.Get(wire.HeaderUpgrade) == "" && strings.EqualFold(strings.TrimSpace(t), "multipart/form-data")
}

// local reports whether the headers are those of an answer that Envoy made itself
// because it could not reach an upstream, or the upstream broke off: plain text,
// without the time that an upstream took.
func (v headerView) local() bool {
	return v.status() >= 500 && v.Get(wire.HeaderUpstreamTime) == "" && strings.HasPrefix(v.Get(wire.HeaderContentType), "text/plain")
}

// attempts returns how often Envoy tried, 0 when it does not say.
func (v headerView) attempts() int {
	n, err := strconv.Atoi(v.Get(wire.HeaderAttempts))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// retryAfter returns for how long the engine wants to be left alone, 0 when it does not say.
// It may name a date: that is counted from the answer's own, since clocks differ, or from now.
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

// contentLength returns the declared length, -1 when there is none.
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
