package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/server/roots"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const (
	modelsPace = 50 * time.Millisecond // between looks at the pool's models, until all lists have been read
	modelsSlow = 500 * time.Millisecond
	// listsWait is how long a starting replica waits for the model lists of its engines.
	listsWait = 3 * time.Second
	// modelKeep is how long a model is kept after the last engine that reported it. Engines that
	// restart report none for a while.
	modelKeep = 10 * time.Minute
)

// foundModels connects the models that engines report with their files.
type foundModels struct {
	source *modelfiles.Source
	groups atomic.Pointer[[]roots.Group]     // models in use by the pool
	roots  atomic.Pointer[map[string]string] // root by served name
	listed atomic.Bool                       // the lists of all engines have been read once, or listsWait has passed
	used   atomic.Int64                      // number of found models that are loaded or being loaded
	wake   chan struct{}                     // files have been found
	peers  *peerFiles                        // nil without a group
	seen   map[string]seenModel              // by root; owned by followModels
}

// seenModel is a model that engines reported.
type seenModel struct {
	group roots.Group
	at    time.Time // of the last report
}

// openModelFiles opens the source of model files. It starts no search.
func (s *Server) openModelFiles() (err error) {
	s.modelFiles.wake, s.modelFiles.seen = make(chan struct{}, 1), map[string]seenModel{}
	s.modelFiles.groups.Store(new([]roots.Group))
	s.modelFiles.roots.Store(&map[string]string{})
	o := s.o.ModelSource
	o.Mode = cmp.Or(o.Mode, modelfiles.ModeOff)
	o.Agent, o.Registerer, o.Log = "grapevine/"+s.o.Version, s.registry, s.o.Log
	o.Changed = func() {
		select {
		case s.modelFiles.wake <- struct{}{}:
		default:
		}
	}
	if s.o.Cluster.enabled() && !s.withoutSource() {
		s.modelFiles.peers = &peerFiles{s: s}
		o.Group = s.modelFiles.peers
	}
	s.modelFiles.source, err = modelfiles.Open(o)
	return err
}

// followModels keeps the wanted models and those in use up to date, until ctx ends.
func (s *Server) followModels(ctx context.Context) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	watch := s.dog.Loop("model files").Within(longWork) // it waits for the list of streams
	var last *endpoint.Snapshot
	var used time.Time
	for files := false; ; {
		watch.Working()
		now, first := s.pool.Snapshot(), false
		if !s.modelFiles.listed.Load() { // read before the lists are used, because lists may arrive during the call
			first = allListed(now) || time.Since(s.started) > listsWait
		}
		if now != last || files || first || time.Since(used) > modelKeep/10 {
			last, used = now, time.Now()
			s.useModels(now)
		}
		if first {
			s.modelFiles.listed.Store(true)
		}
		pace := modelsPace
		if s.modelFiles.listed.Load() {
			pace = modelsSlow
		}
		tick.Reset(ticks.Until(pace))
		watch.Waiting()
		files = false
		select {
		case <-ctx.Done():
			return
		case <-s.modelFiles.wake:
			files = true
		case <-tick.C:
		}
	}
}

// allListed reports whether the model list of each endpoint has been read.
func allListed(snapshot *endpoint.Snapshot) bool {
	return len(snapshot.Endpoints) > 0 && !slices.ContainsFunc(snapshot.Endpoints, func(ep *endpoint.Endpoint) bool {
		list, _ := ep.EngineModels()
		return list == nil && !ep.Down() && ep.Cluster == ""
	})
}

// useModels sets the wanted models from the pool's, and loads those whose files have been found.
func (s *Server) useModels(snapshot *endpoint.Snapshot) {
	defer s.share.Set() // the vocabularies of streams may have changed
	if s.withoutSource() {
		return
	}
	var lists []*endpoint.ModelList
	for _, ep := range snapshot.Endpoints {
		if list, _ := ep.EngineModels(); list != nil && ep.Cluster == "" {
			lists = append(lists, list)
		}
	}
	groups := s.modelFiles.keep(roots.Of(lists, s.models.Configures), time.Now())
	s.modelFiles.groups.Store(&groups)
	var wants []modelfiles.Want
	rootOf := map[string]string{}
	for _, g := range groups {
		for _, name := range append(slices.Clone(g.Names), g.Root) {
			rootOf[name] = g.Root
		}
		wants = append(wants, modelfiles.Want{Root: g.Root, Names: g.Names})
	}
	s.modelFiles.roots.Store(&rootOf)
	s.modelFiles.source.Set(wants)
	var found []ModelOptions
	for _, g := range groups {
		if folder := s.modelFiles.source.Folder(g.Root); folder != "" {
			found = append(found, ModelOptions{Name: g.Root, Path: folder, Aliases: g.Names, Adapters: g.Adapters})
		}
	}
	s.models.SetFound(found)
	s.modelFiles.used.Store(int64(len(found)))
}

// keep returns the groups, followed by recently reported groups that no engine reports now. Names
// of current groups take precedence.
func (f *foundModels) keep(groups []roots.Group, now time.Time) []roots.Group {
	taken := map[string]bool{}
	for _, g := range groups {
		f.seen[g.Root] = seenModel{g, now}
		for _, name := range slices.Concat([]string{g.Root}, g.Names, g.Adapters) {
			taken[name] = true
		}
	}
	isTaken := func(name string) bool { return taken[name] }
	for _, root := range slices.Sorted(maps.Keys(f.seen)) {
		old := f.seen[root]
		switch {
		case now.Sub(old.at) > modelKeep:
			delete(f.seen, root)
		case !taken[root]:
			g := roots.Group{Root: root, Names: slices.Clone(old.group.Names), Adapters: slices.Clone(old.group.Adapters)}
			g.Names, g.Adapters = slices.DeleteFunc(g.Names, isTaken), slices.DeleteFunc(g.Adapters, isTaken)
			groups = append(groups, g)
			for _, name := range slices.Concat([]string{root}, g.Names, g.Adapters) {
				taken[name] = true
			}
		}
	}
	return groups
}

// withoutSource reports whether only configured models are used.
func (s *Server) withoutSource() bool {
	return s.o.ModelSource.Mode == "" || s.o.ModelSource.Mode == modelfiles.ModeOff
}

// modelsReady reports whether no model is being searched for or loaded for the first time. A search
// counts only until ReadyTimeout: downloads may take longer than a replica may stay unready.
func (s *Server) modelsReady() bool {
	return s.models.Ready() && !s.searching()
}

// searching reports whether a starting replica may still find model files soon.
func (s *Server) searching() bool {
	if s.withoutSource() || time.Since(s.started) > s.o.ReadyTimeout {
		return false
	}
	f := &s.modelFiles
	return !f.listed.Load() || f.source.Pending() || f.source.Found() > int(f.used.Load())
}

// knowledgeOf returns how completely an endpoint's cache is known for prompts, and why it is not
// better. Without the files of its model, prompts are not matched by its events.
func (s *Server) knowledgeOf(ep *endpoint.Endpoint, read knowledge.State) (knowledge.State, string) {
	state, reason := s.prefixes.State(ep, read)
	root, ok := (*s.modelFiles.roots.Load())[ep.Base()]
	if !ok || read <= knowledge.Approximate { // there are no events to match by
		return state, reason
	}
	if st, remedy, missing := s.modelFiles.source.Missing(root); missing {
		return knowledge.Approximate, fmt.Sprintf("files of model %s: %s; %s", budget.PrintableName(root), st, remedy)
	}
	return state, reason
}

// withoutFiles describes the models whose prompts are matched approximately because their files are
// missing, "" if there are none.
func (s *Server) withoutFiles() string {
	n, first := 0, ""
	for _, st := range s.modelFiles.source.Status() {
		if st.State != modelfiles.StateReady && st.State != modelfiles.StatePending {
			if n++; n == 1 {
				first = fmt.Sprintf("%s: %s: %s", st.Model, st.State, st.Remedy)
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("prompts of %d models are matched approximately (%s)", n, first)
}

// pendingModels returns the names of models whose files are being searched for the first time.
func (s *Server) pendingModels() (list []facts.ModelInUse) {
	pending := map[string]bool{}
	for _, st := range s.modelFiles.source.Status() {
		if st.State == modelfiles.StatePending {
			pending[st.Model] = true
		}
	}
	names := map[string]bool{}
	for _, g := range *s.modelFiles.groups.Load() {
		if pending[budget.PrintableName(g.Root)] {
			for _, name := range slices.Concat([]string{g.Root}, g.Names, g.Adapters) {
				names[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list = append(list, facts.ModelInUse{Name: name, Loading: true})
	}
	return list
}
