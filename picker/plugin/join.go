package plugin

import "github.com/grapevine-epp/grapevine/picker/cycle"

// Join adds the plugin's roles to a profile under a name. A second picker replaces the first.
func (p *Plugin) Join(profile *cycle.Profile, name string, weight float64) {
	if p.Filter != nil {
		profile.Filters = append(profile.Filters, cycle.ProfileFilter{Name: name, Filter: p.Filter})
	}
	if p.Scorer != nil {
		profile.Scorers = append(profile.Scorers, cycle.ProfileScorer{Name: name, Weight: weight, Scorer: p.Scorer})
	}
	if p.Picker != nil {
		profile.Picker = p.Picker
	}
}
