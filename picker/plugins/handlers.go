package plugins

import (
	"fmt"
	"strings"

	"github.com/grapevine-epp/grapevine/picker"
)

func lower(s string) string { return strings.ToLower(s) }

// singleHandler runs one profile.
type singleHandler struct{ profile *picker.Profile }

// Single returns the profile handler that runs one profile for every request.
func Single(p *picker.Profile) picker.ProfileHandler { return singleHandler{p} }

func newSingle(profiles []*picker.Profile) (picker.ProfileHandler, error) {
	if len(profiles) != 1 {
		return nil, fmt.Errorf("needs exactly one scheduling profile, not %d", len(profiles))
	}
	return singleHandler{profiles[0]}, nil
}

// Handle implements picker.ProfileHandler.
func (h singleHandler) Handle(c *picker.Cycle, plan *picker.Plan) error {
	plan.Order = append(plan.Order, h.profile.Run(c).Order...)
	return nil
}

type dataParallelParams struct {
	PrimaryPort int `json:"primaryPort"`
}

// dataParallel runs one profile over ranks that share an address: the request
// goes to the primary port, and a header names the rank's own.
type dataParallel struct {
	profile *picker.Profile
	port    uint16
}

func newDataParallel(p dataParallelParams) (Plugin, error) {
	handler := func(profiles []*picker.Profile) (picker.ProfileHandler, error) {
		if len(profiles) != 1 {
			return nil, fmt.Errorf("needs exactly one scheduling profile, not %d", len(profiles))
		}
		return dataParallel{profiles[0], uint16(p.PrimaryPort)}, nil
	}
	return Plugin{Handler: handler}, must(p.PrimaryPort > 0 && p.PrimaryPort < 1<<16, "primaryPort", "must be a port number")
}

// Handle implements picker.ProfileHandler.
func (h dataParallel) Handle(c *picker.Cycle, plan *picker.Plan) error {
	best := h.profile.Run(c).Best()
	if best < 0 {
		return nil
	}
	plan.Order = append(plan.Order, best)
	plan.Port = h.port
	plan.Headers = append(plan.Headers, picker.HeaderSet{Name: picker.HeaderDataParallel, Value: c.All(best).Address})
	return nil
}

type headerProfileParams struct {
	HeaderName     string `json:"headerName"`
	DefaultProfile string `json:"defaultProfile"`
}

// headerProfile runs the profile that a request header names. A single profile
// always runs; without the header the default one does; an unknown name is the
// client's error.
type headerProfile struct {
	header   string
	fallback *picker.Profile
	profiles []*picker.Profile
}

func newHeaderProfile(p headerProfileParams) (Plugin, error) {
	handler := func(profiles []*picker.Profile) (picker.ProfileHandler, error) {
		h := headerProfile{header: lower(p.HeaderName), profiles: profiles}
		if h.fallback = h.find(p.DefaultProfile); len(profiles) == 1 {
			h.fallback = profiles[0]
		}
		if h.fallback == nil {
			return nil, fmt.Errorf("its default profile %q does not exist", p.DefaultProfile)
		}
		return h, nil
	}
	return Plugin{Handler: handler}, must(p.HeaderName != "", "headerName", "must not be empty")
}

func (h headerProfile) find(name string) *picker.Profile {
	for _, p := range h.profiles {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Handle implements picker.ProfileHandler.
func (h headerProfile) Handle(c *picker.Cycle, plan *picker.Plan) error {
	profile, name := h.fallback, ""
	if c.Request.Headers != nil && len(h.profiles) > 1 {
		name = strings.TrimSpace(c.Request.Headers.Get(h.header))
	}
	if name != "" {
		if profile = h.find(name); profile == nil {
			return picker.Errorf(picker.ReasonBadRequest, "header %s names a scheduling profile that does not exist", h.header)
		}
	}
	plan.Order = append(plan.Order, profile.Run(c).Order...)
	return nil
}
