// Writes C for a robot: Pinocchio's algorithms on symbols of CasADi.  casadi_functions MODEL FOLDER NAME...
#include <casadi/casadi.hpp>

#include "pinocchio/autodiff/casadi.hpp"

#include "pinocchio/algorithm/aba-derivatives.hpp"
#include "pinocchio/algorithm/aba.hpp"
#include "pinocchio/algorithm/crba.hpp"
#include "pinocchio/algorithm/rnea.hpp"

#include "model.hpp"

using casadi::SX;
using Vector = Eigen::Matrix<SX, -1, 1>;

int main(int, char ** given)
{
  const auto plain = read_model(given[1]);
  const auto model = plain.cast<SX>();
  pinocchio::DataTpl<SX> data(model);
  const SX q = SX::sym("q", model.nq), v = SX::sym("v", model.nv), x = SX::sym("x", model.nv);
  Vector Q(model.nq), V(model.nv), X(model.nv);
  for (int i = 0; i < model.nq; ++i) Q[i] = q(i);
  for (int i = 0; i < model.nv; ++i) V[i] = v(i), X[i] = x(i);
  const auto vector = [&](const auto & y) { SX found(y.rows(), 1); for (int i = 0; i < y.rows(); ++i) found(i) = y[i]; return found; };
  const auto matrix = [&](const auto & y) {
    SX found(y.cols(), y.rows());  // CasADi keeps columns: transposed, so that rows stand one after the other
    for (int i = 0; i < y.rows(); ++i) for (int j = 0; j < y.cols(); ++j) found(j, i) = y(i, j);
    return SX::densify(found);
  };
  for (int k = 3; given[k]; ++k)
  {
    const std::string name = given[k];
    std::vector<SX> results;
    if (name == "forward_dynamics") results = {vector(pinocchio::aba(model, data, Q, V, X))};
    else if (name == "inverse_dynamics") results = {vector(pinocchio::rnea(model, data, Q, V, X))};
    else if (name == "mass_matrix")
    {
      data.M.setZero();
      pinocchio::crba(model, data, Q);
      data.M.triangularView<Eigen::StrictlyLower>() = data.M.transpose().triangularView<Eigen::StrictlyLower>();
      results = {matrix(data.M)};
    }
    else
    {
      data.Minv.setZero();
      pinocchio::computeABADerivatives(model, data, Q, V, X);
      data.Minv.triangularView<Eigen::StrictlyLower>() = data.Minv.transpose().triangularView<Eigen::StrictlyLower>();
      results = {matrix(data.ddq_dq), matrix(data.ddq_dv), matrix(data.Minv)};
    }
    casadi::Function f(name, {q, v, x}, results);
    casadi::CodeGenerator writer(name + ".c", casadi::Dict{{"with_header", false}});
    writer.add(f);
    writer.generate(std::string(given[2]) + "/");
    std::cout << name << " " << f.n_instructions() << std::endl;
  }
}
