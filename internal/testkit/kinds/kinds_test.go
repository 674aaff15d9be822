package kinds

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestDirect: an engine is equal to another one, and every kind is answered as meant.
func TestDirect(t *testing.T) {
	a, b := httptest.NewServer(Engine("a")), httptest.NewServer(Engine("b"))
	defer a.Close()
	defer b.Close()
	addr := a.Listener.Addr().String()
	if n := Compare(t, addr, b.Listener.Addr().String()); n < 20 {
		t.Errorf("%d kinds", n)
	}
	got := Ask(t, addr)
	for kind, want := range map[string]string{
		"chat": "200\n", "upgrade": "101\n", "engine's fault": "500\n", "answer without content": "204\n", "HTTP/1.0": "26 bytes", "asks before the body": "26 bytes",
		"headers": "X-Many: one, two\n", "query and escapes": "POST /v1/completions;v=1?a=%20b%2Fc&a=%C3%BC&d=//\n", "redirect": "Location: /v1/models\n", "stream": "text/event-stream",
	} {
		if !strings.Contains(got[kind], want) {
			t.Errorf("%s: got\n%s\nwant %q within", kind, got[kind], want)
		}
	}
}
