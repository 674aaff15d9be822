package server

import (
	"slices"
	"testing"
)

// TestDepartedReplicaIsNotListed: proxies no longer receive the ext_proc address of a replica that
// has departed or withdrawn it.
func TestDepartedReplicaIsNotListed(t *testing.T) {
	x := new(xdsShare)
	for origin, address := range map[string]string{"b": "10.0.0.2:9002", "c": "10.0.0.3:9002", "d": "10.0.0.4:9002"} {
		if err := x.Merge(origin, 1, keyExtProc, []byte(address)); err != nil {
			t.Fatal(err)
		}
	}
	x.Drop("b")
	if err := x.Merge("c", 1, keyExtProc, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := x.replicas("10.0.0.1:9002"), []string{"10.0.0.1:9002", "10.0.0.4:9002"}; !slices.Equal(got, want) {
		t.Errorf("proxies receive %v, want %v", got, want)
	}
}
