package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestPickedPools: pools that name the Service as their picker are found with their ports, while
// pools come, change and go. Read failures remove nothing.
func TestPickedPools(t *testing.T) {
	t.Parallel()
	api, server := newFakeAPI(t)
	put := func(name, ref string, generation, second int) {
		api.put("inferencepools", name, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"prod","uid":"uid-%s","generation":%d,"creationTimestamp":"2026-01-01T00:00:%02dZ"},
			"spec":{"selector":{"matchLabels":{"app":"x"}},"targetPorts":[{"number":8000}],"endpointPickerRef":%s}}`, name, name, generation, second, ref))
	}
	put("b", `{"name":"epp","port":{"number":9012}}`, 1, 1)
	put("a", `{"name":"epp","kind":"Service","port":{"number":9011}}`, 1, 2)
	put("other", `{"name":"another","port":{"number":9011}}`, 1, 3)
	put("backend", `{"name":"epp","group":"example.com","kind":"Picker","port":{"number":9014}}`, 1, 4)
	put("late", `{"name":"epp","port":{"number":9012}}`, 1, 5)
	put("portless", `{"name":"epp"}`, 1, 6)
	p, err := FollowPicked(PickedOptions{Config: kubeapi.Config{Server: server.URL, Namespace: "prod"}, Service: "epp"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	want := func(want string) {
		t.Helper()
		testkit.Eventually(t, func() string {
			list, known := p.Pools()
			var got []string
			for _, x := range list {
				text := fmt.Sprintf("%s:%d", x.Name, x.Port)
				if x.Problem != "" {
					text += "!"
				}
				got = append(got, text)
			}
			if s := strings.Join(got, " "); s != want || !known {
				return fmt.Sprintf("pools %q (known: %v), want %q", s, known, want)
			}
			return ""
		})
	}
	want("a:9011 b:9012 late:9012! portless:0!")
	put("a", `{"name":"epp","port":{"number":9015}}`, 2, 2)
	api.remove("inferencepools/b")
	want("a:9015 late:9012 portless:0!")
	put("a", `{"name":"another","port":{"number":9015}}`, 3, 2)
	want("late:9012 portless:0!")
	<-p.Changed()

	api.deny("list inferencepools", "watch inferencepools")
	server.CloseClientConnections()
	testkit.Await(t, "the failure is reported", func() bool { return p.Problem() != "" })
	if list, known := p.Pools(); known || len(list) != 2 {
		t.Errorf("without the permission: %d pools, known %v; want the 2 that were known, and false", len(list), known)
	}
}

// TestPickedOlder: pools of v1alpha2 name their picker in extensionRef, with a default port.
func TestPickedOlder(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]picked{
		`{"spec":{"extensionRef":{"name":"epp","portNumber":9009}}}`: {service: "epp", port: 9009},
		`{"spec":{"extensionRef":{"name":"epp"}}}`:                   {service: "epp", port: 9002},
		`{"spec":{}}`: {},
		`{"spec":{"endpointPickerRef":{"name":"epp"}}}`: {service: "epp"},
	} {
		if got, err := readPicked([]byte(raw)); err != nil || got.service != want.service || got.port != want.port {
			t.Errorf("%s: readPicked() = %+v, %v; want %+v", raw, got, err, want)
		}
	}
}
