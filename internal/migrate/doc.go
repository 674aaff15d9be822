// Package migrate translates other endpoint pickers' command lines to grapevine serve and reports
// differences.
package migrate
