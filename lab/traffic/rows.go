// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// AppendRow appends the row of a message as ITGDec writes it, and reads it with -t. Times are those of the day in UTC.
func AppendRow(b []byte, r *Record) []byte {
	return fmt.Appendf(b, "Flow>%04d Seq>%7d Src>%46s/%d Dest>%46s/%d txTime>%s rxTime>%s Size>%5d\n",
		r.Flow, r.Number, r.From.Addr(), r.From.Port(), r.To.Addr(), r.To.Port(), ofDay(r.Sent), ofDay(r.Received), r.Size)
}

// ofDay has no leading zero of hours, minutes and seconds, as C's %u and %lf have none.
func ofDay(t time.Time) string {
	t = t.UTC()
	return fmt.Sprintf("%d:%d:%d.%06d", t.Hour(), t.Minute(), t.Second(), t.Nanosecond()/1000)
}

// ParseRow reads a row of D-ITG's text log. Its times are of the day, and taken for those of the first one of 1970.
func ParseRow(row string) (r Record, err error) {
	fields := map[string]string{}
	for label, rest := "", row; rest != ""; {
		rest = strings.TrimLeft(rest, " \n")
		if name, value, ok := strings.Cut(rest, ">"); ok && !strings.Contains(name, " ") {
			label, rest = name, strings.TrimLeft(value, " ")
			fields[label], rest, _ = strings.Cut(rest, " ")
			continue
		}
		if rest != "" {
			return r, fmt.Errorf("no row of D-ITG: %.80q", row)
		}
	}
	numbers := [3]uint64{}
	for i, name := range []string{"Flow", "Seq", "Size"} {
		if numbers[i], err = strconv.ParseUint(strings.TrimSpace(fields[name]), 10, 32); err != nil {
			return r, fmt.Errorf("no row of D-ITG, its %s: %w", name, err)
		}
	}
	r.Flow, r.Number, r.Size = uint32(numbers[0]), uint32(numbers[1]), int(numbers[2])
	for name, at := range map[string]*netip.AddrPort{"Src": &r.From, "Dest": &r.To} {
		addr, port, _ := strings.Cut(fields[name], "/")
		a, err := netip.ParseAddr(addr)
		if err != nil {
			return r, fmt.Errorf("no row of D-ITG, its %s: %w", name, err)
		}
		p, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return r, fmt.Errorf("no row of D-ITG, its %s: %w", name, err)
		}
		*at = netip.AddrPortFrom(a, uint16(p))
	}
	for name, at := range map[string]*time.Time{"txTime": &r.Sent, "rxTime": &r.Received} {
		if *at, err = time.Parse("15:4:5.000000", fields[name]); err != nil {
			return r, fmt.Errorf("no row of D-ITG, its %s: %w", name, err)
		}
	}
	return r, nil
}

// AppendWindow appends a window as ITGDec -c writes it: time in s, kbit/s, delay and jitter in s, messages lost.
func AppendWindow(b []byte, w Window) []byte {
	return fmt.Appendf(b, "%.6f %.6f %.6f %.6f %.6f\n", w.At.Seconds(), w.Rate/1000, w.Delay.Seconds(), w.Jitter.Seconds(), float64(w.Lost))
}

const ruler = "----------------------------------------------------------\n"

// WriteSummary writes the statistics of a flow as ITGDec does.
func WriteSummary(w io.Writer, flow uint32, from, to netip.AddrPort, s *Stats) error {
	total := s.Last.Sub(s.First).Seconds()
	packets := 0.0
	if total > 0 {
		packets = float64(s.Received) / total
	}
	burst := 0.0
	if s.Bursts > 0 {
		burst = float64(s.Lost) / float64(s.Bursts)
	}
	_, err := fmt.Fprintf(w, ruler+"Flow number: %d\nFrom %s:%d\nTo    %s:%d\n"+ruler+
		"Total time               = %13.6f s\nTotal packets            = %13d\n"+
		"Minimum delay            = %13.6f s\nMaximum delay            = %13.6f s\nAverage delay            = %13.6f s\n"+
		"Average jitter           = %13.6f s\nDelay standard deviation = %13.6f s\n"+
		"Bytes received           = %13d\nAverage bitrate          = %13.6f Kbit/s\nAverage packet rate      = %13.6f pkt/s\n"+
		"Packets dropped          = %13d (%.2f %%)\nAverage loss-burst size  = %13.6f pkt\n"+ruler,
		flow, from.Addr(), from.Port(), to.Addr(), to.Port(),
		total, s.Received, s.Least.Seconds(), s.Most.Seconds(), s.Mean().Seconds(), s.Jitter().Seconds(), s.Deviation().Seconds(),
		s.Octets, s.Rate()/1000, packets, s.Lost, 100*s.Loss(), burst)
	return err
}
