// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	labreport "github.com/isthmus-net/isthmus/lab/report"
)

// LabCompareCmd compares the results of two sets of runs.
type LabCompareCmd struct {
	First  string  `arg:"" type:"path" help:"Folder with results, with all folders in it."`
	Second string  `arg:"" type:"path" help:"Folder with results of the same experiments."`
	Within float64 `default:"15" placeholder:"PERCENT" help:"How far apart two medians may be: ${default} % by default."`
}

// Validate is called by kong.
func (c *LabCompareCmd) Validate() error {
	if c.Within < 0 {
		return fmt.Errorf("--within=%v: write a percentage from 0", c.Within)
	}
	return nil
}

// Run prints the ratios that differ, and what only one set has. Both are an error, so that a
// script need not read the table.
func (c *LabCompareCmd) Run(to streams) error {
	first, err := gather(c.First, to)
	if err != nil {
		return err
	}
	second, err := gather(c.Second, to)
	if err != nil {
		return err
	}
	compared := labreport.Compare(first, second)
	if len(compared.Ratios) == 0 {
		return fmt.Errorf("%s and %s have no ratio in common: make results of the same experiments", c.First, c.Second)
	}
	table := compared.Table(c.Within / 100)
	if err := table.WriteText(to.out); err != nil {
		return err
	}
	if !compared.Alike(c.Within / 100) {
		return quietError(exitFailed)
	}
	return nil
}
