// Package link lets the packages of this module reach parts of each other
// that users must not see. Each variable is set once, by the init function of
// the package that owns the type, and only read after that. The parameters
// are any, since link cannot import the packages that set it.
package link
