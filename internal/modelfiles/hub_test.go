package modelfiles

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerify: a file is accepted with the SHA-256, the Git name or the SHA-1 of its content, and
// with an ETag that is no digest.
func TestVerify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	for etag, want := range map[string]bool{
		sum: true, "ce013625030ba8dba906f756967f9e9ca394464a": true, "f572d396fae9206628714fb2ce00f72e94f2258f": true, "5d8c72a5edda8d6a:0": true, "": true,
		strings.Repeat("0", 64): false, strings.Repeat("0", 40): false,
	} {
		if err := verify(path, "f", etag, sum, 6); (err == nil) != want {
			t.Errorf("verify(%s) = %v, want accepted: %v", etag, err, want)
		}
	}
}

// TestNoDowngrade: a redirect from https to http is refused before anything is requested there.
func TestNoDowngrade(t *testing.T) {
	asked := false
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	t.Cleanup(secure.Close)
	s := open(t, Options{Endpoint: secure.URL, Transport: secure.Client().Transport})
	s.Set([]Want{{Root: "org/m"}})
	if st := await(t, s, StateRefused); asked || !strings.Contains(st.Error, "redirect") {
		t.Errorf("status %+v, plain host asked: %v; want the redirect refused", st, asked)
	}
}
