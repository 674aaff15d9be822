package plugins

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

func lower(s string) string { return strings.ToLower(s) }

// whole is a profile for requests that one endpoint serves entirely. It excludes endpoints labelled
// for other phases, unless the profile has a role filter.
type whole struct {
	*cycle.Profile
	anyRole bool
}

func newWhole(p *cycle.Profile) whole {
	return whole{p, slices.ContainsFunc(p.Filters, func(f cycle.ProfileFilter) bool { return choosesRole(f.Filter) })}
}

// run ranks the candidates.
func (w whole) run(c *cycle.Cycle) (*cycle.Ranking, error) {
	if w.anyRole {
		return w.Run(c), nil
	}
	return w.RunServing(c)
}

// place appends the profile's order to the plan.
func (w whole) place(c *cycle.Cycle, plan *cycle.Plan) error {
	ranking, err := w.run(c)
	if err == nil {
		plan.Order = append(plan.Order, ranking.Order...)
	}
	return err
}

// singleHandler runs one profile.
type singleHandler struct{ profile whole }

// Single returns a profile handler that runs one profile for every request.
func Single(p *cycle.Profile) cycle.ProfileHandler { return singleHandler{newWhole(p)} }

func newSingle(profiles []*cycle.Profile, _ []plugin.Decider) (cycle.ProfileHandler, error) {
	if len(profiles) != 1 {
		return nil, fmt.Errorf("needs exactly one scheduling profile, not %d", len(profiles))
	}
	return Single(profiles[0]), nil
}

// Handle implements cycle.ProfileHandler.
func (h singleHandler) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	return h.profile.place(c, plan)
}

type dataParallelParams struct {
	PrimaryPort int `json:"primaryPort"`
	TargetPort  int `json:"targetPort,omitempty"` // older name of primaryPort
}

// dataParallel runs one profile over ranks that share an address. The request is sent to the
// primary port, and a header names the rank's port.
type dataParallel struct {
	profile whole
	port    uint16
}

func newDataParallel(p dataParallelParams) (plugin.Plugin, error) {
	field := "primaryPort"
	if p.TargetPort != 0 {
		field, p.PrimaryPort = "targetPort", p.TargetPort
	}
	handler := func(profiles []*cycle.Profile, _ []plugin.Decider) (cycle.ProfileHandler, error) {
		if len(profiles) != 1 {
			return nil, fmt.Errorf("needs exactly one scheduling profile, not %d", len(profiles))
		}
		return dataParallel{newWhole(profiles[0]), uint16(p.PrimaryPort)}, nil
	}
	return plugin.Plugin{Handler: handler}, plugin.Require(p.PrimaryPort > 0 && p.PrimaryPort < 1<<16, field, "must be a port number")
}

// Handle implements cycle.ProfileHandler.
func (h dataParallel) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	ranking, err := h.profile.run(c)
	if err != nil || len(ranking.Order) == 0 {
		return err
	}
	best := ranking.Best()
	plan.Order = append(plan.Order, best)
	plan.Port = h.port
	plan.Headers = append(plan.Headers, request.HeaderSet{Name: request.HeaderDataParallel, Value: c.All(best).Address})
	return nil
}

type headerProfileParams struct {
	HeaderName     string `json:"headerName"`
	DefaultProfile string `json:"defaultProfile"`
}

// headerProfile runs the profile named by a request header. A single profile always runs. Without
// the header the default one runs. An unknown name is a client error.
type headerProfile struct {
	header   string
	fallback *whole
	profiles []whole
}

func newHeaderProfile(p headerProfileParams) (plugin.Plugin, error) {
	handler := func(profiles []*cycle.Profile, _ []plugin.Decider) (cycle.ProfileHandler, error) {
		h := headerProfile{header: lower(p.HeaderName)}
		for _, profile := range profiles {
			h.profiles = append(h.profiles, newWhole(profile))
		}
		if h.fallback = h.find(p.DefaultProfile); len(profiles) == 1 {
			h.fallback = &h.profiles[0]
		}
		if h.fallback == nil {
			return nil, fmt.Errorf("its default profile %q does not exist", p.DefaultProfile)
		}
		return h, nil
	}
	return plugin.Plugin{Handler: handler}, plugin.Require(p.HeaderName != "", "headerName", "must not be empty")
}

func (h headerProfile) find(name string) *whole {
	for i := range h.profiles {
		if h.profiles[i].Name == name {
			return &h.profiles[i]
		}
	}
	return nil
}

// Handle implements cycle.ProfileHandler.
func (h headerProfile) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	profile, name := h.fallback, ""
	if c.Request.Headers != nil && len(h.profiles) > 1 {
		name = strings.TrimSpace(c.Request.Headers.Get(h.header))
	}
	if name != "" {
		if profile = h.find(name); profile == nil {
			return request.Errorf(request.ReasonBadRequest, "header %s names a scheduling profile that does not exist", h.header)
		}
	}
	return profile.place(c, plan)
}
