package server

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/internal/modelfiles/claims"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
)

// meetTime is how long a starting replica waits for the claims of its group before it downloads
// model files. Other replicas are found within it; see LonelyTimeout of package cluster.
const meetTime = 3 * time.Second

// peerFiles exchanges model files with the other replicas. It implements modelfiles.Group.
type peerFiles struct {
	s      *Server
	files  *facts.Files
	joined time.Time // when this replica began to look for its group; set before the first search
}

// join registers the exchange with a group.
func (f *peerFiles) join(group facts.Group) {
	f.files = facts.NewFiles(facts.FilesOptions{
		Group: group, Now: monotime.Now, Log: f.s.o.Log,
		Read: func(p facts.FilePage) ([]byte, bool) {
			return f.s.modelFiles.source.Read(p.Repo, p.Commit, p.Name, p.Offset, facts.MaxPage)
		},
	})
}

// Self implements modelfiles.Group.
func (f *peerFiles) Self() string { return f.s.node.Self().ID }

// Met implements modelfiles.Group.
func (f *peerFiles) Met() bool {
	if time.Since(f.joined) >= meetTime {
		return true
	}
	peers, _ := f.s.node.Peers()
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
	peers, _ := f.s.node.Peers()
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
