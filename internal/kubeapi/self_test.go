package kubeapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestSelf: only a service account with a UID counts, and a server that does not report it is no error.
func TestSelf(t *testing.T) {
	for _, tc := range []struct {
		name, answer string
		code         int
		want         Account
		fails        bool
	}{
		{"service account", `{"status":{"userInfo":{"username":"system:serviceaccount:prod:epp","uid":"u1"}}}`, http.StatusCreated, Account{"prod", "epp", "u1"}, false},
		{"without UID", `{"status":{"userInfo":{"username":"system:serviceaccount:prod:epp"}}}`, http.StatusCreated, Account{}, false},
		{"user", `{"status":{"userInfo":{"username":"admin","uid":"1"}}}`, http.StatusCreated, Account{}, false},
		{"user with a similar name", `{"status":{"userInfo":{"username":"system:serviceaccount:prod","uid":"1"}}}`, http.StatusCreated, Account{}, false},
		{"not served", `{"kind":"Status","code":404}`, http.StatusNotFound, Account{}, false},
		{"forbidden", `{"kind":"Status","code":403}`, http.StatusForbidden, Account{}, false},
		{"unavailable", `{"kind":"Status","code":503}`, http.StatusServiceUnavailable, Account{}, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/apis/authentication.k8s.io/v1/selfsubjectreviews" {
				t.Errorf("%s: request %s %s", tc.name, r.Method, r.URL.Path)
			}
			w.WriteHeader(tc.code)
			_, _ = w.Write([]byte(tc.answer))
		}))
		c, err := NewClient(Config{Server: server.URL}, "test")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Self(t.Context()); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: Self() = %+v, %v; want %+v, failure %t", tc.name, got, err, tc.want, tc.fails)
		}
		c.Close()
		server.Close()
	}
}
