package discovery

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/strict"
)

// Limits.
const (
	maxPort  = 65535
	maxRanks = 256
	maxHost  = 253
)

// portOf reads a port: a number, or one in quotes.
func portOf(n strict.Node) (uint16, bool) {
	if n.IsText() {
		s, _ := n.Text()
		port, err := strconv.ParseUint(s, 10, 16)
		if err != nil || port == 0 {
			n.Problem("", "%s must be between 1 and %d, not %q", n.Path(), maxPort, s)
			return 0, false
		}
		return uint16(port), true
	}
	port, ok := n.Int(1, maxPort)
	return uint16(port), ok
}

// models reads a model name or a list of names.
func models(n strict.Node) ([]string, bool) {
	if !n.IsList() {
		s, ok := n.Text()
		if ok && s == "" {
			n.Problem("", "%s is empty", n.Path())
		}
		return []string{s}, ok
	}
	list, _ := n.List()
	out := make([]string, 0, len(list))
	for _, m := range list {
		if s, ok := m.Text(); ok {
			out = append(out, s)
		}
	}
	return out, true
}

// host reads an address or a host name and returns it in canonical form.
func (p *parser) host(n strict.Node) string {
	s, ok := n.Text()
	if !ok {
		return ""
	}
	bare := s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		bare = s[1 : len(s)-1]
	}
	if a, err := netip.ParseAddr(bare); err == nil {
		return p.address(n, a)
	}
	if _, err := netip.ParseAddrPort(s); err == nil || hasPort(s) {
		n.Problem("the port has a field of its own: port", "%s must be an address without a port, not %q", n.Path(), s)
		return ""
	}
	if strings.Contains(s, "://") {
		n.Problem("leave the scheme and the path out", "%s must be an address or a host name, not the URL %q", n.Path(), s)
		return ""
	}
	if why := badName(s); why != "" {
		n.Problem("", "%s must be an address or a host name: %q %s", n.Path(), s, why)
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(s, "."))
}

func (p *parser) address(n strict.Node, a netip.Addr) string {
	switch {
	case a.IsUnspecified() || a.IsMulticast():
		n.Problem("", "%s: no engine can be at %s", n.Path(), a)
	case a.Zone() != "":
		n.Problem("give an address that means the same on every host", "%s: %s has a zone", n.Path(), a)
	default:
		return a.Unmap().String()
	}
	return ""
}

func hasPort(s string) bool {
	host, port, found := strings.Cut(s, ":")
	_, err := strconv.ParseUint(port, 10, 16)
	return found && err == nil && badName(host) == ""
}

// badName returns why a host name is invalid, or "".
func badName(s string) string {
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return "is empty"
	}
	if len(s) > maxHost {
		return "is too long"
	}
	digits := true
	for _, label := range strings.Split(s, ".") {
		if label == "" || len(label) > 63 {
			return "has an empty or too long part"
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return "has a part that begins or ends with a dash"
		}
		for _, c := range []byte(label) {
			if !nameByte(c) {
				return "has a character that names do not have: " + strconv.QuoteRune(rune(c))
			}
			digits = digits && c >= '0' && c <= '9'
		}
	}
	if digits {
		return "is not a complete IPv4 address"
	}
	return ""
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// metricsURL reads the URL of a metrics page.
func metricsURL(n strict.Node) string {
	s, ok := n.Text()
	if !ok {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		n.Problem("such as http://10.0.0.7:9400/metrics", "%s must be an http or https URL, not %q", n.Path(), s)
		return ""
	}
	return s
}

func unreadable(path string, err error) Problem {
	return Problem{File: path, Message: cause(err)}
}
