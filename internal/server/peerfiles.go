package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/modelfiles/claims"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
)

// meetTime is how long a starting replica waits for the claims of its group before it downloads
// model files. Other replicas are found within it; see LonelyTimeout of package cluster.
const meetTime = 3 * time.Second

// peerFiles exchanges model files with the other replicas. It implements modelfiles.Group, whose
// methods are called once run has begun.
type peerFiles struct {
	node   *cluster.Node
	files  *facts.Files
	joined time.Time // when this replica began to look for its group
}

// join registers the exchange with the group of a node, before the node is opened. read returns the
// pages of this replica's own files.
func (f *peerFiles) join(node *cluster.Node, read func(facts.FilePage) ([]byte, bool), log *slog.Logger) {
	f.node = node
	f.files = facts.NewFiles(facts.FilesOptions{Group: facts.Of(node), Now: monotime.Now, Log: log, Read: read})
}

// Self implements modelfiles.Group.
func (f *peerFiles) Self() string { return f.node.Self().ID }

// Met implements modelfiles.Group.
func (f *peerFiles) Met() bool {
	if time.Since(f.joined) >= meetTime {
		return true
	}
	peers, _ := f.node.Peers()
	for i := range peers {
		if p := &peers[i]; !p.Replaced && !f.files.Present(p.ID) {
			return false
		}
	}
	return len(peers) > 0
}

// Publish implements modelfiles.Group.
func (f *peerFiles) Publish(repo, revision string, c *claims.Claim) {
	f.files.Publish(repo, revision, c)
}

// Claims implements modelfiles.Group.
func (f *peerFiles) Claims(repo string) []claims.Peer {
	list := f.files.Claims(repo)
	if len(list) == 0 {
		return nil
	}
	names := map[string]string{}
	peers, _ := f.node.Peers()
	for i := range peers {
		names[peers[i].ID] = peers[i].Name
	}
	for i := range list {
		list[i].Name = names[list[i].Member]
	}
	return list
}

// Changed implements modelfiles.Group.
func (f *peerFiles) Changed() <-chan struct{} { return f.files.Changed() }

// Page implements modelfiles.Group.
func (f *peerFiles) Page(ctx context.Context, member, repo, commit, name string, offset int64) ([]byte, error) {
	return f.files.Page(ctx, member, facts.FilePage{Repo: repo, Commit: commit, Name: name, Offset: offset})
}
