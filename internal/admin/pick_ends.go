package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// maxLogLine is the maximum size of a datagram; longer lines are truncated.
const maxLogLine = 64 << 10

// pickEnd is the end of a pick as reported by an access log line.
type pickEnd struct {
	id       string
	status   int
	served   string // ip:port of the endpoint that responded; "" if unknown
	complete bool   // the client received the whole response
}

// listenEnds opens the datagram listener: host:port or unix:PATH. It replaces a socket file without
// a listener.
func listenEnds(bind string) (net.PacketConn, error) {
	network := "udp"
	if path, ok := strings.CutPrefix(bind, "unix:"); ok {
		network, bind = "unixgram", path
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("pick: %w", err)
			}
		}
	}
	conn, err := net.ListenPacket(network, bind)
	if err != nil {
		return nil, fmt.Errorf("pick: listen on %s: %w", bind, err)
	}
	if c, ok := conn.(interface{ SetReadBuffer(int) error }); ok {
		_ = c.SetReadBuffer(1 << 20) // for bursts; lost lines expire
	}
	return conn, nil
}

// readEnds ends the picks named in access log lines until the listener is closed. Lines without a
// pick belong to other requests and are not counted.
func (p *Pick) readEnds() {
	buf := make([]byte, maxLogLine)
	for {
		n, _, err := p.ends.ReadFrom(buf)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.o.Log.Error("listener for ended picks stopped", "error", err)
			}
			return
		}
		for line := range bytes.Lines(buf[:n]) {
			e, ok := parseEnd(line)
			if !ok {
				continue
			}
			result := "ended"
			if !p.end(e.id, request.Outcome{At: p.o.Now(), Status: e.status, Served: e.served, Complete: e.complete}) {
				result = "unknown"
			}
			p.picks.WithLabelValues(result).Inc()
		}
	}
}

// parseEnd parses an access log line: NAME=VALUE words in any order among other text, or one JSON
// object in Caddy's format.
func parseEnd(line []byte) (e pickEnd, ok bool) {
	if at := bytes.IndexByte(line, '{'); at >= 0 && bytes.Contains(line[at:], []byte(`"resp_headers"`)) {
		return parseEndJSON(line[at:])
	}
	ended := ""
	for word := range bytes.FieldsSeq(line) {
		name, value, _ := strings.Cut(string(word), "=")
		switch name {
		case "pick":
			e.id = value
		case "status":
			e.status = logStatus(value)
		case "served":
			e.served = address(value)
		case "end":
			ended = value
		}
	}
	// nginx writes OK, HAProxy --, if neither side ended it early.
	e.complete = e.status > 0 && (ended == "OK" || ended == "--")
	return e, validID(e.id)
}

func parseEndJSON(line []byte) (e pickEnd, ok bool) {
	var entry struct {
		Status  int                 `json:"status"`
		Headers map[string][]string `json:"resp_headers"`
	}
	if json.Unmarshal(line, &entry) != nil {
		return e, false
	}
	if id := entry.Headers[http.CanonicalHeaderKey(headerPickID)]; len(id) > 0 {
		e.id = id[0]
	}
	e.status = logStatus(strconv.Itoa(entry.Status)) // 0 if the client disconnected
	e.complete = e.status > 0
	return e, validID(e.id)
}

// logStatus returns an HTTP status, or 0. nginx writes 499 for a client that disconnected.
func logStatus(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 100 || n > 599 || n == 499 {
		return 0
	}
	return n
}

// address returns text if it is ip:port. Proxies that tried no endpoint write other text.
func address(text string) string {
	if _, err := netip.ParseAddrPort(text); err != nil {
		return ""
	}
	return text
}

// validID reports whether id has the form of a pick's ID.
func validID(id string) bool {
	return len(id) == pickIDLen && strings.Trim(id, "0123456789abcdef") == ""
}
