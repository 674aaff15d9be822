package replay

import "github.com/grapevine-epp/grapevine/picker/endpoint"

// labels returns the labels of an engine.
func (c *Case) labels(engine int) map[string]string {
	out := map[string]string{}
	if engine < len(c.Roles) && c.Roles[engine] != "" {
		out[endpoint.LabelRole] = c.Roles[engine]
	}
	if engine < len(c.Zones) && c.Zones[engine] != "" {
		out[endpoint.Levels[endpoint.LevelZone].Label] = c.Zones[engine]
	}
	return out
}

// zone returns the zone of a replica, "" for none.
func (c *Case) zone(replica int) string {
	if replica < len(c.Homes) {
		return c.Homes[replica].Zone
	}
	return ""
}

// home returns the replica that gets a session's requests.
func (c *Case) home(session int32) int {
	sum := 0.0
	for _, h := range c.Homes {
		sum += h.Demand
	}
	x := (uint64(session)+c.Seed)*0x9e3779b97f4a7c15 ^ 0xbf58476d1ce4e5b9
	x = (x ^ x>>31) * 0x94d049bb133111eb
	at := float64(x>>11) / (1 << 53) * sum
	for i, h := range c.Homes {
		if at -= h.Demand; at < 0 {
			return i
		}
	}
	return len(c.Homes) - 1
}

// crossed reports whether a request left the zone of its replica.
func (s *simulation) crossed(replica, engine int) bool {
	zone := s.zone(replica)
	return zone != "" && engine < len(s.Zones) && s.Zones[engine] != "" && s.Zones[engine] != zone
}
