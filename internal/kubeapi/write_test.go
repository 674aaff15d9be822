package kubeapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestWrites checks requests and error messages.
func TestWrites(t *testing.T) {
	var got string
	code, answer := http.StatusOK, "{}"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = strings.Join([]string{r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), string(body)}, " ")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	c, err := NewClient(Config{Server: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := Patch{Resource: things.Resource, Namespace: "ns", Name: "x", Sub: "status", Manager: "me"}
	const path = "/apis/example.org/v1/namespaces/ns/things"
	for _, tc := range []struct {
		name  string
		write func() error
		want  string
		rule  string
	}{
		{"create", func() error { return c.Create(t.Context(), p.Resource, "ns", 7) }, "POST " + path + "? application/json 7", `resources ["things"] verbs ["create"] in`},
		{"apply", func() error { return c.Apply(t.Context(), p, 7) }, "PATCH " + path + "/x/status?fieldManager=me&force=true application/apply-patch+yaml 7", `resources ["things/status"] verbs ["patch"] resourceNames ["x"]`},
		{"merge", func() error { return c.Merge(t.Context(), p, 7) }, "PATCH " + path + "/x/status?fieldManager=me application/merge-patch+json 7", `resources ["things/status"] verbs ["patch"] resourceNames ["x"]`},
		{"delete", func() error { return c.Delete(t.Context(), p, "u", "5") }, "DELETE " + path + `/x? application/json {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"5","uid":"u"}}`, `resources ["things"] verbs ["delete"] resourceNames ["x"]`},
	} {
		code, answer = http.StatusOK, "{}"
		if err := tc.write(); err != nil || got != tc.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", tc.name, err, got, tc.want)
		}
		code, answer = http.StatusConflict, `{"kind":"Status","code":409,"reason":"Conflict","message":"the object has been modified","details":{"name":"x","kind":"things"}}`
		if err := tc.write(); !IsConflict(err) || !strings.Contains(err.Error(), "has been modified") {
			t.Errorf("%s: %v", tc.name, err)
		}
		code, answer = http.StatusForbidden, `{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}`
		if err := tc.write(); !IsForbidden(err) || IsConflict(err) || !strings.Contains(err.Error(), tc.rule) {
			t.Errorf("%s: %v", tc.name, err)
		}
		// In a real server's words.
		answer = `{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"things \"x\" is forbidden: unable to create new content in namespace ns because it is being terminated","details":{"name":"x","causes":[{"reason":"NamespaceTerminating","message":"namespace ns is being terminated","field":"metadata.namespace"}]}}`
		if err := tc.write(); IsForbidden(err) || err.Error() != "namespace ns is being deleted" {
			t.Errorf("%s while the namespace is deleted: %v", tc.name, err)
		}
	}
}
