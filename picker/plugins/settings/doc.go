// Package settings holds the plugin types that choose nobody: what they say
// reaches the rest of the program through [plugin.Plugin], such as where engines'
// metrics pages are, or where requests carry their session key. Types of other
// endpoint pickers whose work is built in here are accepted, and their note says
// what does the work.
package settings
