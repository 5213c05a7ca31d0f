# backward_sm90's compiled kernels: one for each row of kConfigs (config.hpp), input type
# and order of additions, and for each row and type one with options; instances.cpp makes the list of them a table.
set(backward_sm90_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/backward_sm90/throughput)
set(backward_sm90_declarations "")
set(backward_sm90_entries "")
set(type_Fp16 f16)
set(type_Bf16 bf16)

# A macro: it adds to the lists above.
macro(backward_sm90_instance name class element config in_turn options)
  set(INSTANCE_NAME ${name})
  set(INSTANCE_CLASS "${class}")
  set(source ${backward_sm90_generated}/${INSTANCE_NAME}.cu)
  configure_file(backward_sm90/throughput/instance.cu.in ${source} @ONLY)
  set(group ${type_${element}}_plain)
  if(${options})
    set(group ${type_${element}}_options)
  endif()
  flashcore_cuda_sources(backward_sm90 LISTED GROUP ${group} SOURCES ${source})
  if(flashcore_cuda_compiled)
    string(APPEND backward_sm90_declarations "InstanceEntry ${INSTANCE_NAME}();\n")
    string(APPEND backward_sm90_entries
      "      {{InputType::${type_${element}}, ${config}, ${in_turn}, ${options}}, ${INSTANCE_NAME}()},\n")
  endif()
endmacro()

foreach(INSTANCE_ELEMENT Fp16 Bf16)
  foreach(INSTANCE_CONFIG RANGE 2)
    string(TOLOWER "${INSTANCE_ELEMENT}_config${INSTANCE_CONFIG}" name)
    if(INSTANCE_CONFIG LESS 2)  # kPlainConfigs
      backward_sm90_instance(${name} "CompiledInstance<${INSTANCE_CONFIG}, ${INSTANCE_ELEMENT}, false>"
        ${INSTANCE_ELEMENT} ${INSTANCE_CONFIG} false false)
      backward_sm90_instance(${name}_in_turn "CompiledInstance<${INSTANCE_CONFIG}, ${INSTANCE_ELEMENT}, true>"
        ${INSTANCE_ELEMENT} ${INSTANCE_CONFIG} true false)
    endif()
    backward_sm90_instance(${name}_options "CompiledOptions<${INSTANCE_CONFIG}, ${INSTANCE_ELEMENT}>"
      ${INSTANCE_ELEMENT} ${INSTANCE_CONFIG} true true)
  endforeach()
endforeach()
configure_file(backward_sm90/throughput/instance_list.hpp.in ${backward_sm90_generated}/instance_list.hpp @ONLY)

flashcore_cuda_sources(backward_sm90 SOURCES backward_sm90/throughput/rows.cu
  backward_sm90/throughput/option_rows.cu)
target_sources(flashcore_objects PRIVATE backward_sm90/throughput/instances.cpp)
set_source_files_properties(backward_sm90/throughput/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${backward_sm90_generated})

include(backward_sm90/throughput/split/instances.cmake)
