#include "scheduler/team.h"

namespace ditron::sim {

Team &Teams::get(std::vector<int32_t> ranks, const std::string &name) {
  std::unique_ptr<Team> &team = teams[{ranks, name}];
  if (!team) {
    team = std::make_unique<Team>();
    team->indexOf.assign(numRanks, -1);
    team->inside.assign(ranks.size(), nullptr);
    for (size_t index = 0; index < ranks.size(); ++index) {
      team->indexOf[ranks[index]] = int32_t(index);
    }
    team->ranks = std::move(ranks);
  }
  return *team;
}

} // namespace ditron::sim
