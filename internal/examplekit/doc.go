// Package examplekit is what the examples need around them and what none of
// them is about: a cluster to run on, topics of their own, a reader that judges
// the result, and two ways to die.
//
// Nothing in it is needed to use the module.
package examplekit
