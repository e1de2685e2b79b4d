"""What figures stand on: daemons, engines, observers and peers, each ended by who began it."""
