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

// maxLogLine bounds a datagram that is read; more of a line is cut off.
const maxLogLine = 64 << 10

// pickEnd is what a line of a proxy's access log tells of a pick.
type pickEnd struct {
	id       string
	status   int
	served   string // ip:port of the endpoint that answered, "" when the line does not say
	complete bool   // the client got the whole answer
}

// listenEnds opens the datagram listener: host:port, or unix:PATH, where a socket
// that nobody listens on any more is replaced.
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
		_ = c.SetReadBuffer(1 << 20) // a burst of ends; what does not fit expires
	}
	return conn, nil
}

// readEnds ends the picks that lines of access logs name, until the listener is
// closed. Lines without a pick are other requests' and are not counted.
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

// parseEnd reads a line of an access log: words NAME=VALUE in any order, among
// whatever else stands there, or one JSON object as Caddy writes it.
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
	// nginx says OK, HAProxy -- where neither side ended it early.
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
	e.status = logStatus(strconv.Itoa(entry.Status)) // 0 where the client left
	e.complete = e.status > 0
	return e, validID(e.id)
}

// logStatus returns an HTTP status, or 0. 499 is nginx's word for a client that left.
func logStatus(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 100 || n > 599 || n == 499 {
		return 0
	}
	return n
}

// address returns text if it is ip:port, which proxies that tried nobody do not write.
func address(text string) string {
	if _, err := netip.ParseAddrPort(text); err != nil {
		return ""
	}
	return text
}

// validID reports whether it has the form of our identifiers.
func validID(id string) bool {
	return len(id) == pickIDLen && strings.Trim(id, "0123456789abcdef") == ""
}
