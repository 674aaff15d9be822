package programs

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

type headers map[string]string

func (h headers) Get(name string) string { return h[name] }

// TestIdentify checks which name decides, and that nothing identifies a program in other requests.
func TestIdentify(t *testing.T) {
	c := &Config{Headers: Headers, Parents: Parents, MaxWait: time.Minute}
	of := func(r request.Request) Turn {
		r.Kind = request.KindChat
		u, _ := c.Identify(&r)
		return u
	}
	session := of(request.Request{Session: "lead"})
	child := of(request.Request{Session: "child", Headers: headers{"x-parent-session-id": "lead"}})
	named := of(request.Request{Session: "lead", Headers: headers{"x-program-id": "run", "x-parent-session-id": "other"}})
	same := of(request.Request{Session: "child", Headers: headers{"x-program-id": "run"}})
	if session.Program == 0 || session.Program != session.Session || child.Program != session.Program || child.Session == session.Session {
		t.Errorf("session %+v and its child %+v are not one program", session, child)
	}
	if named.Program != same.Program || named.Program == session.Program || named.Session == same.Session {
		t.Errorf("%+v and %+v are not two agents of one program", named, same)
	}
	if u := of(request.Request{Previous: "resp_1"}); u.Previous == 0 || u.Program != u.Previous {
		t.Errorf("%+v does not continue a response", u)
	}
	if a, b := of(request.Request{Session: "s", Tenant: "a"}), of(request.Request{Session: "s", Tenant: "b"}); a.Program == b.Program {
		t.Error("two tenants share a program")
	}
	if u := of(request.Request{Session: "s", QueueTTL: 20 * time.Second}); u.Most != int64(10*time.Second) {
		t.Errorf("kept for %v, want half of the time to live", time.Duration(u.Most))
	}
	for name, r := range map[string]request.Request{
		"without a name": {Kind: request.KindChat},
		"embeddings":     {Kind: request.KindEmbeddings, Session: "s"},
		"untrusted":      {Kind: request.KindChat, Session: "s", Unnamed: true},
	} {
		if u, ok := c.Identify(&r); ok {
			t.Errorf("%s: %+v", name, u)
		}
	}
	r := &request.Request{Kind: request.KindChat, Headers: headers{}}
	if n := testing.AllocsPerRun(100, func() { c.Identify(r) }); n != 0 {
		t.Errorf("%v allocations for a request without a program", n)
	}
}
