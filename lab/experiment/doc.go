// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package experiment holds what the lab can run: tours that show a role at
// work, and one experiment for each published table or figure. Each draws its
// topology, starts Isthmus and its peers as a user would, does the same work
// with both, and reports by package report.
//
// All lists them; Musts is the one table of the bounds that figures are judged
// by.
package experiment
