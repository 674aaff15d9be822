// Package migrate translates the command lines of other endpoint pickers into that
// of grapevine serve, and says what differs.
package migrate
