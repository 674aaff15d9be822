package extproc

import (
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestClustersHeader: the client's choice of clusters reaches the picker of another cluster, and no
// engine.
func TestClustersHeader(t *testing.T) {
	v := headerView{list: []wire.Header{{Name: request.HeaderClusters, Value: "b"}, {Name: "content-type", Value: "x"}}}
	engine := &request.Decision{}
	gateway := &request.Decision{SetHeaders: []request.HeaderSet{{Name: request.HeaderHop, Value: "token"}}}
	if got := foreign(nil, v, forwards(engine)); !slices.Equal(got, []string{request.HeaderClusters}) {
		t.Errorf("removed for an engine: %v, want %s", got, request.HeaderClusters)
	}
	if got := foreign(nil, v, forwards(gateway)); len(got) != 0 {
		t.Errorf("removed for another cluster's gateway: %v, want nothing", got)
	}
}
